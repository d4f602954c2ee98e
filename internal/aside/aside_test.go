package aside

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"hallmark/internal/testenv"
)

// TestMain makes the test binary its own helper.
func TestMain(m *testing.M) {
	Serve()
	os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0") // helpers end at once
	goleak.VerifyTestMain(m)
}

var (
	echo   = New("test.echo", func(s string) (string, error) { return strings.ToUpper(s), nil })
	fails  = New("test.fails", func(string) (string, error) { return "", &os.PathError{Op: "open", Path: "x", Err: syscall.EPERM} })
	sleeps = New("test.sleeps", func(d time.Duration) (bool, error) {
		time.Sleep(d)
		return true, nil
	})
	spins = New("test.spins", func(d time.Duration) (bool, error) {
		for end := time.Now().Add(d); time.Now().Before(end); {
		}
		return true, nil
	})
	opens = NewOpener("test.opens", func(size int) (int, Content, error) {
		return size, content{bytes.NewReader(pattern(size))}, nil
	})
	opensLate = NewOpener("test.late", func(d time.Duration) (int, Content, error) {
		time.Sleep(d)
		return 0, content{bytes.NewReader(nil)}, nil
	})
	length = New("test.length", func(number uint64) (int64, error) {
		c, ok := Kept(number).(content)
		if !ok {
			return 0, os.ErrClosed
		}
		return c.Size(), nil
	})
	keeps = New("test.keeps", func(bool) (int, error) {
		serving.mu.Lock()
		defer serving.mu.Unlock()
		return len(serving.kept), nil
	})
	number = New("test.number", func(bool) (int, error) { return os.Getpid(), nil })
)

type content struct{ *bytes.Reader }

func (content) Close() error { return nil }

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7 / 3)
	}
	return b
}

// anew forgets what was waited for.
func anew() {
	waits.mu.Lock()
	defer waits.mu.Unlock()
	waits.left = maxWait
	waits.busyUntil, waits.why = time.Time{}, nil
	clear(waits.about)
}

func TestAnswers(t *testing.T) {
	anew()
	if got, err := echo.Ask("a", "text"); err != nil || got != "TEXT" {
		t.Errorf("%q, %v", got, err)
	}
	_, err := fails.Ask("a", "")
	if !errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), "open x") {
		t.Errorf("%v, want the helper's error", err)
	}
	if errors.Is(err, ErrUnanswered) {
		t.Error("an error counts as silence")
	}
}

// TestSilence asks what is never answered: nobody waits long, those who ask the same again do not
// wait at all, and others have their answers.
func TestSilence(t *testing.T) {
	anew()
	before, err := number.Ask("b", true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sleeps.Ask("a", time.Hour); !errors.Is(err, ErrUnanswered) {
		t.Errorf("%v, want no answer", err)
	}
	for range 1000 {
		if _, err := sleeps.Ask("a", time.Hour); !errors.Is(err, errSilent) {
			t.Errorf("%v, want a silent server", err)
		}
	}
	if got, err := echo.Ask("b", "text"); err != nil || got != "TEXT" {
		t.Errorf("%q, %v", got, err)
	}
	after, err := number.Ask("b", true)
	if err == nil && after != before || errors.Is(err, ErrUnanswered) {
		testenv.Lack(t, "helper %d, %v, before %d: it had no CPU time to say that it is there", after, err, before)
	}
	if err != nil {
		t.Error(err)
	}
}

// TestPatience wants many silent servers not to take longer than some.
func TestPatience(t *testing.T) {
	var p patience
	p.left, p.about = maxWait, map[string]*matter{}
	now := time.Unix(1e9, 0)
	waited := time.Duration(0)
	for i := range 1000 {
		name := string(rune('a' + i))
		most := p.begin(name, now)
		if most == 0 {
			continue
		}
		began := now
		now = now.Add(most)
		waited += most
		p.end(name, began, now, false)
	}
	if waited < maxWait || waited > maxWait+maxGraces*graceTime {
		t.Errorf("waited %v for 1000 servers, want %v and a little", waited, maxWait)
	}
	now = now.Add(silence + refill*maxWait)
	if p.begin("a", now) != eachWait {
		t.Error("who was silent is never asked again")
	}
	p.end("a", now, now.Add(time.Millisecond), true)

	// One that answers, each time in time and slowly, does not take for ever either.
	now = now.Add(time.Hour)
	waited = 0
	for range 1000 {
		most := p.begin("slow", now)
		if most == 0 {
			break
		}
		began := now
		now = now.Add(most * 9 / 10)
		waited += now.Sub(began)
		p.end("slow", began, now, true)
	}
	if waited > maxWait+eachWait {
		t.Errorf("waited %v for a slow server", waited)
	}
}

// TestFile reads a file that the helper has open.
func TestFile(t *testing.T) {
	anew()
	const size = 3<<20 + 12345
	want := pattern(size)
	n, f, err := opens.Ask("a", size)
	if err != nil || n != size {
		t.Fatal(n, err)
	}
	got, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<40))
	if errors.Is(err, ErrUnanswered) {
		testenv.Lack(t, "%v", err)
	}
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for _, at := range []int64{0, 1, blockSize - 3, size - 10, size, size + 10} {
		for _, n := range []int{0, 1, 7, blockSize - 1, blockSize, 2 << 20} {
			b, c := make([]byte, n), make([]byte, n)
			have, err := f.ReadAt(b, at)
			if errors.Is(err, ErrUnanswered) {
				testenv.Lack(t, "%v", err)
			}
			expected, expectedErr := bytes.NewReader(want).ReadAt(c, at)
			if have != expected || err != expectedErr && (n > 0 || err != nil) || !bytes.Equal(b, c) {
				t.Errorf("%d bytes at %d: %d, %v, want %d, %v", n, at, have, err, expected, expectedErr)
			}
		}
	}
	if n, err := Serves(f, length, f.Number()); err != nil || n != size {
		t.Errorf("length %d, %v", n, err)
	}
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Error(err)
	}
	if n, err := keeps.Ask("a", true); err != nil || n != 0 {
		t.Errorf("%d files are open in the helper, %v", n, err)
	}
}

// TestLate wants a file to be closed that nobody waits for any more.
func TestLate(t *testing.T) {
	anew()
	_, f, err := opensLate.Ask("a", eachWait+100*time.Millisecond)
	if err == nil {
		f.Close()
		testenv.Lack(t, "the answer was waited for, because the machine is busy")
	}
	if !errors.Is(err, ErrUnanswered) || f != nil {
		t.Fatal(f, err)
	}
	testenv.Await(t, "the close of the file", func() bool {
		n, err := keeps.Ask("b", true)
		return err == nil && n == 0
	})
}

// TestAnother wants another helper in the place of one that answers nothing at all.
func TestAnother(t *testing.T) {
	anew()
	before, err := number.Ask("a", true)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(before, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, "the helper's stop", func() bool { return isStopped(before) })
	_, _ = number.Ask("c", true)
	anew()
	after, err := number.Ask("a", true)
	if err != nil || after == before {
		t.Errorf("%d, %v, before %d", after, err, before)
	}
}

// isStopped reports whether all threads of a process are stopped: each stops when it next runs.
func isStopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, t := range threads {
		if stat, _ := os.ReadFile(t); !bytes.Contains(stat, []byte(") T ")) {
			return false
		}
	}
	return len(threads) > 0
}

// TestBusy asks a helper that takes longer because it works: it is waited for, within bounds, and
// no file system is blamed. It stands for a helper that has work and no CPU.
func TestBusy(t *testing.T) {
	anew()
	before, err := number.Ask("b", true)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := spins.Ask("a", eachWait*3/2); err != nil || !ok {
		t.Errorf("%v, want an answer", err)
	}
	anew()
	waits.mu.Lock()
	waits.busyUntil = time.Now() // no more is waited for
	waits.mu.Unlock()
	for range 2 {
		_, err = spins.Ask("a", eachWait*3/2)
		if !errors.Is(err, ErrUnanswered) || !errors.Is(err, ErrBusy) || strings.Contains(err.Error(), "file system") {
			t.Errorf("%v, want a busy machine", err)
		}
	}
	anew()
	if after, err := number.Ask("b", true); err != nil || after != before {
		t.Errorf("helper %d, %v, before %d", after, err, before)
	}
}

// TestBusyIsBounded wants no more than some time to be waited for a busy machine.
func TestBusyIsBounded(t *testing.T) {
	anew()
	defer anew()
	waited, now := time.Duration(0), time.Unix(1e9, 0)
	for range 1000 {
		if waitBusy(now) {
			waited += busyStep
		}
		now = now.Add(busyStep)
	}
	if waited < maxBusy || waited > maxBusy+busyStep {
		t.Errorf("waited %v, want %v", waited, maxBusy)
	}
	if now = now.Add((refill + 1) * maxBusy); !waitBusy(now) {
		t.Error("a busy machine is never waited for again")
	}
}
