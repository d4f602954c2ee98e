// Package browser drives the pages of 'hallmark view' in Chromium, as a user does: its tests look
// at what is shown, and its command "shots" takes the pictures in docs.
package browser

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Find returns where Chromium is.
func Find() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("chromium is not in PATH")
}

// Browser is a running Chromium.
type Browser struct {
	ctx  context.Context
	stop func()
}

// Start starts Chromium without a window.
func Start(ctx context.Context) (*Browser, error) {
	path, err := Find()
	if err != nil {
		return nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WindowSize(1280, 800),
		chromedp.Flag("enable-precise-memory-info", true), chromedp.Flag("force-color-profile", "srgb"))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocated, stopAllocator := chromedp.NewExecAllocator(ctx, options...)
	own, stopBrowser := chromedp.NewContext(allocated)
	b := &Browser{ctx: own, stop: func() { stopBrowser(); stopAllocator() }}
	if err := chromedp.Run(own); err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

// Stop ends Chromium.
func (b *Browser) Stop() { b.stop() }

// Page is a tab.
type Page struct {
	ctx  context.Context
	stop context.CancelFunc

	mu       sync.Mutex
	problems []string
}

// Look is how the window is.
type Look struct {
	Width, Height int64
	Dark          bool
	Phone         bool
}

// patience is how long something may take to appear.
const patience = time.Minute

// Open opens a tab that is empty.
func (b *Browser) Open(look Look) (*Page, error) {
	ctx, stop := chromedp.NewContext(b.ctx)
	p := &Page{ctx: ctx, stop: stop}
	chromedp.ListenTarget(ctx, p.note)
	scheme := "light"
	if look.Dark {
		scheme = "dark"
	}
	size := []chromedp.EmulateViewportOption{}
	if look.Phone {
		size = append(size, chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulateScale(2))
	}
	err := p.Do(log.Enable(), runtime.Enable(),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}),
		chromedp.EmulateViewport(max(look.Width, 300), max(look.Height, 300), size...))
	if err != nil {
		stop()
		return nil, err
	}
	return p, nil
}

// note keeps what the console of the browser says.
func (p *Page) note(event any) {
	text := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text = e.ExceptionDetails.Error()
	case *runtime.EventConsoleAPICalled:
		text = string(e.Type)
		for _, a := range e.Args {
			text += " " + string(a.Value) + a.Description
		}
	case *log.EventEntryAdded:
		if e.Entry.Level != log.LevelError && e.Entry.Level != log.LevelWarning {
			return
		}
		text = e.Entry.Text + " " + e.Entry.URL
	default:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, text)
}

// Problems returns what the console had since the last call.
func (p *Page) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.problems
	p.problems = nil
	return list
}

// Close closes the tab.
func (p *Page) Close() { p.stop() }

// Do does things in the tab, one after the other.
func (p *Page) Do(actions ...chromedp.Action) error {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if chromedp.FromContext(ctx).Target == nil { // the first use makes the tab, which lives as long as its context
		return chromedp.Run(p.ctx, actions...)
	}
	return chromedp.Run(ctx, actions...)
}

// Go opens a URL and waits until the pages are drawn.
func (p *Page) Go(url string) error {
	return p.Do(chromedp.Navigate(url), chromedp.WaitReady("html[data-ready]", chromedp.ByQuery))
}

// Eval returns the value of an expression, of which a promise is awaited.
func (p *Page) Eval(expression string, to any) error {
	return p.Do(chromedp.Evaluate(expression, to, func(e *runtime.EvaluateParams) *runtime.EvaluateParams { return e.WithAwaitPromise(true) }))
}

// Await waits until an expression is true.
func (p *Page) Await(expression string) error {
	deadline := time.Now().Add(patience)
	for {
		var is bool
		if err := p.Eval("Boolean("+expression+")", &is); err != nil {
			return err
		}
		if is {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("never: %s", expression)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Show changes what is shown, by the fragment of the URL, and waits until it is.
func (p *Page) Show(fragment string) error {
	return p.Do(chromedp.Evaluate(fmt.Sprintf("location.hash = %q", fragment), nil), chromedp.Sleep(50*time.Millisecond),
		chromedp.WaitNotPresent(".busy", chromedp.ByQuery))
}

// Picture takes a picture of the window.
func (p *Page) Picture() ([]byte, error) {
	var b []byte
	err := p.Do(chromedp.CaptureScreenshot(&b))
	return b, err
}

// View is a running 'hallmark view' or 'hallmark serve'.
type View struct {
	URL string
	cmd *exec.Cmd
}

// StartView starts 'hallmark view' with these arguments.
func StartView(hallmark string, args ...string) (*View, error) {
	return start(hallmark, append([]string{"view", "--no-browser", "--no-debuginfod"}, args...)...)
}

// StartServer starts 'hallmark serve' over an empty store in a directory, with these arguments.
func StartServer(hallmark, dir string, args ...string) (*View, error) {
	return start(hallmark, append([]string{"serve", "--listen", "127.0.0.1:0", "--no-upstream", "--quiet", "--store", dir + "/store", "--cache", dir + "/cache"}, args...)...)
}

func start(hallmark string, args ...string) (*View, error) {
	cmd := exec.Command(hallmark, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	v := &View{cmd: cmd}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "Serving "); ok {
			v.URL, _, _ = strings.Cut(rest, " ")
			return v, nil
		}
	}
	v.Stop()
	return nil, fmt.Errorf("hallmark %s ended before it served", args[0])
}

// PID returns the process.
func (v *View) PID() int { return v.cmd.Process.Pid }

// Stop ends it.
func (v *View) Stop() {
	v.cmd.Process.Signal(syscall.SIGINT)
	v.cmd.Wait()
}

// Settle waits until nothing is asked and all is drawn.
func (p *Page) Settle() error {
	var n int
	return p.Eval(`new Promise((done) => {
		let quiet = 0, seen = -1;
		const look = () => {
			const n = performance.getEntriesByType("resource").length;
			quiet = n === seen && !document.querySelector(".busy") ? quiet + 1 : 0;
			seen = n;
			if (quiet > 4) done(n); else setTimeout(look, 100);
		};
		look();
	})`, &n)
}
