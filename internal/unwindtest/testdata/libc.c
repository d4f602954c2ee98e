// The C library's own code, much of it assembler written by hand, libm, and callbacks
// out of it.
#include <locale.h>
#include <math.h>
#include <regex.h>
#include <search.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>
#include "corpus.h"

static volatile double sink;
static char a[70000], b[70000];

static int less(const void *x, const void *y)
{
	return strcmp(*(char *const *)x, *(char *const *)y);
}

static void strings(unsigned n)
{
	size_t len = n % 9000 + 1;
	memset(a, 'a' + (int)(n % 20), len);
	a[len] = 0;
	memcpy(b, a, len + 1);
	memmove(b + 1, b, len);
	sink += (double)strlen(a) + memcmp(a, b, len) + (double)(size_t)strchr(a, 'z') + strcmp(a, b);
	sink += strstr(a, "aaab") != NULL;
	sink += memchr(a, 0, sizeof a) != NULL;
	sink += (double)strspn(a, "abc") + (double)strcspn(a, "xyz");
}

static void sorting(unsigned n)
{
	static char text[400][12];
	static char *p[400];
	for (unsigned i = 0; i < 400; i++) {
		snprintf(text[i], sizeof text[i], "%u", i * 7919u * (n + 1) % 100003u);
		p[i] = text[i];
	}
	qsort(p, 400, sizeof *p, less);
	char *key = p[n % 400];
	sink += bsearch(&key, p, 400, sizeof *p, less) != NULL;
}

static void numbers(unsigned n)
{
	double x = n * 0.37 + 0.1;
	for (int i = 0; i < 40; i++) {
		sink += sin(x) + cos(x) + exp(-x / 1000) + pow(x, 0.3) + log(x) + tgamma(1 + fmod(x, 5)) + atan2(x, 2);
		x += 0.77;
	}
	char out[200];
	snprintf(out, sizeof out, "%.17g %s %10.3e %-20d %lc", x, "text", x, (int)n, (wint_t)'x');
	sink += strtod(out, NULL) + (double)strtol("123456", NULL, 10);
}

static void expressions(unsigned n)
{
	regex_t r;
	if (regcomp(&r, "([a-z]+)([0-9]*)x?(foo|bar)*", REG_EXTENDED))
		return;
	regmatch_t m[4];
	for (unsigned i = 0; i < 5; i++)
		sink += regexec(&r, n % 2 ? "1234 abc99xfoobar" : "zzzzzzzzzzzzzzz", 4, m, 0);
	regfree(&r);
}

static void memory(unsigned n)
{
	void *p[200];
	for (unsigned i = 0; i < 200; i++)
		p[i] = malloc((i * 37 + n) % 5000 + 1);
	for (unsigned i = 0; i < 200; i += 2)
		p[i] = realloc(p[i], (i * 91 + n) % 9000 + 1);
	for (unsigned i = 0; i < 200; i++)
		free(p[i]);
}

int main(int argc, char **argv)
{
	setlocale(LC_ALL, "");
	corpus_start(argc, argv);
	for (unsigned n = 0; corpus_more(); n++) {
		for (int i = 0; i < 20; i++)
			strings(n * 20 + (unsigned)i);
		sorting(n);
		numbers(n);
		expressions(n);
		memory(n);
	}
	return 0;
}
