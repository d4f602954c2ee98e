// Code that comes and goes, now and then at the address of other code.
#include <dlfcn.h>
#include <stdio.h>
#include "corpus.h"

static volatile unsigned sink;

static int callback(int n)
{
	for (int i = 0; i < 3000; i++)
		sink += (unsigned)(n * i);
	return (int)sink;
}

int main(int argc, char **argv)
{
	char path[2][4096];
	corpus_start(argc, argv);
	for (int i = 0; i < 2; i++)
		snprintf(path[i], sizeof path[i], "%s-plugin%d.so", argv[0], i);
	for (unsigned n = 0; corpus_more(); n++) {
		void *h = dlopen(path[n % 2], RTLD_LAZY);
		if (!h) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		unsigned (*f)(unsigned, int (*)(int)) = (unsigned (*)(unsigned, int (*)(int)))dlsym(h, "plugin");
		for (unsigned i = 0; i < 20; i++)
			sink += f(n + i, callback);
		dlclose(h);
	}
	return 0;
}
