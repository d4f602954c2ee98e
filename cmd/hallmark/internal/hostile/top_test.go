package hostile

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// buildNamed builds a program whose threads have names that a terminal executes, and work without end
// for a sixth of their time, however fast the machine is: the kernel samples a thread first when it has
// worked for a whole period.
func buildNamed(t *testing.T) string {
	t.Helper()
	return buildC(t, `#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
static volatile unsigned long sink;
static void *work(void *name)
{
	struct timespec now, until;
	prctl(PR_SET_NAME, name);
	for (;;) {
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += 1000000;
		do {
			for (int i = 0; i < 10000; i++)
				sink++;
			clock_gettime(CLOCK_MONOTONIC, &now);
		} while ((now.tv_sec - until.tv_sec) * 1000000000L + now.tv_nsec < until.tv_nsec);
		usleep(5000);
	}
}
int main(void)
{
	static char *names[] = { "\033]0;title\007", "\033[2J\n\r", "\302\2332J", "\2332J", "\342\200\256", "<script>alert(" };
	prctl(PR_SET_NAME, "\033]0;t\007\302\233\342\200\256");
	for (int i = 0; i < 6; i++) {
		pthread_t t;
		if (pthread_create(&t, 0, work, names[i]))
			return 1;
	}
	puts("ready");
	fflush(stdout);
	work(names[0]);
}
`)
}

// TestTop looks at a process whose program, threads and map of generated code have names that a
// terminal executes, and has options that nobody means.
func TestTop(t *testing.T) {
	prog := buildNamed(t)
	p := newPlace(t)
	named := p.in("prog" + strings.ReplaceAll(steering, "/", ""))
	if err := os.Rename(prog, named); err != nil {
		t.Fatal(err)
	}
	child := exec.Command(named)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { child.Process.Kill(); child.Wait() }()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	pid := strconv.Itoa(child.Process.Pid)
	perfMap := "/tmp/perf-" + pid + ".map"
	if err := os.WriteFile(perfMap, []byte("0 ffffffffffff f"+steering+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(perfMap)

	round := []string{"top", "-p", pid, "--backend", "perf", "--rounds", "1", "--interval", "300ms"}
	with := func(args ...string) []string { return append(append([]string{}, round...), args...) }
	shown := 0
	for _, args := range [][]string{with("--plain"), with("--plain", "--table", "binaries"), with("--plain", "--table", "processes"), with("--json"), with("--json", "--table", "processes")} {
		r := p.run(command{args: args})
		if strings.Contains(string(r.stdout), "prog") || strings.Contains(string(r.stdout), "title") {
			shown++
		}
	}
	if shown == 0 {
		testenv.Lack(t, "no round has the process")
	}
	for _, args := range [][]string{
		{"--interval", "-1"}, {"--interval", "1e300"}, {"--interval", "0"}, {"--rounds", "-1"}, {"--top", "-5"}, {"--top", "9223372036854775807"}, {"--container", "../../" + steering}, {"--container", ""},
		{"--table", steering}, {"-F", "0"}, {"-F", "4294967296"}, {"--backend", steering}, {"--call-graph", steering}, {"-p", "1,,2"}, {"-p", "99999999999999999999"}, {"-p", "-1"}, {"-p", "0"}, {"-p", steering}, {steering},
	} {
		p.run(command{args: with(append(args, "--plain")...)})
	}
	p.run(command{args: with("--plain", "--filter", steering+strings.Repeat("(", 10_000))})
	for _, table := range []string{"functions", "processes"} {
		// Its own sequences place the cursor and colour text.
		text := p.onTerminal(with("--table", table))
		for tries := 1; table == "functions" && strings.Contains(text, ", 0 samples"); tries++ {
			if tries == 20 {
				testenv.Lack(t, "the process was not on a CPU in 20 rounds")
			}
			text = p.onTerminal(with("--table", table))
		}
		if table == "functions" && !strings.Contains(text, "work") {
			t.Errorf("the terminal has no function of the process: %q", text)
		}
		for _, bad := range []string{"\x1b]", "\a", "\u009b", "\x9b", "\u202e"} {
			if strings.Contains(strings.ToValidUTF8(text, "\x9b"), bad) {
				t.Errorf("%s: the terminal gets %q", table, bad)
			}
		}
	}
}
