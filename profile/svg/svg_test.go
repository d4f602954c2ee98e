package svg

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"hallmark/internal/proftest"
	"hallmark/profile"
)

// image is what an XML parser has of a drawing.
type image struct {
	texts  []string
	titles []string
	count  int
}

func parse(t *testing.T, data []byte) (img image) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(data))
	inside := ""
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return img
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		switch e := token.(type) {
		case xml.StartElement:
			inside = e.Name.Local
			switch inside {
			case "svg", "g", "rect", "text", "title", "style":
			default:
				t.Errorf("there is an element %s", inside)
			}
			for _, a := range e.Attr {
				if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" {
					t.Errorf("there is an attribute %s", a.Name.Local)
				}
				if inside == "rect" && a.Name.Local == "class" && strings.HasPrefix(a.Value, "f ") {
					img.count++
				}
			}
		case xml.CharData:
			switch inside {
			case "text":
				img.texts = append(img.texts, string(e))
			case "title":
				img.titles = append(img.titles, string(e))
			}
		case xml.EndElement:
			inside = ""
		}
	}
}

func draw(t *testing.T, o Options) ([]byte, image) {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, proftest.Mixed(), o); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), parse(t, out.Bytes())
}

func TestFrames(t *testing.T) {
	data, img := draw(t, Options{Title: "mixed", SampleType: "samples"})
	// All; main with loop, step, walk three times, stripped code, vfs_read, its callee; old's.
	if img.count != 14 {
		t.Errorf("%d frames\n%s", img.count, data)
	}
	all := strings.Join(img.texts, "\n") + strings.Join(img.titles, "\n")
	for _, want := range []string{"step", "/usr/bin/app", proftest.AppID, "vfs_read", "18 count samples", "Coverage: 92.5% of the frames identified", "no identity", "[libz.so.1+0x3abc]"} {
		if !strings.Contains(all, want) {
			t.Errorf("there is no %q in\n%s", want, all)
		}
	}
	if !bytes.Contains(data, []byte(fmt.Sprintf(`x="10.0" y="%d" width="1180.0"`, headHeight))) {
		t.Error("the root does not take the whole width at the top")
	}
	again, _ := draw(t, Options{Title: "mixed", SampleType: "samples"})
	if !bytes.Equal(data, again) {
		t.Error("the same profile gives another image")
	}
}

// TestHostileNames wants names to be shown, and nothing to be executed.
func TestHostileNames(t *testing.T) {
	const name = "</text><script>alert(1)</script>&\"'\x00\x1b[2J\xff\u202e"
	p := proftest.Mixed()
	for _, f := range p.Function {
		f.Name = name + f.Name
	}
	for _, m := range p.Mapping {
		m.File, m.BuildID = name+m.File, name
	}
	p.Comments = []string{name}
	var out bytes.Buffer
	if err := Write(&out, p, Options{Title: name, SampleType: "samples"}); err != nil {
		t.Fatal(err)
	}
	img := parse(t, out.Bytes())
	if img.texts[0] != "</text><script>alert(1)</script>&\"'\ufffd\ufffd[2J\ufffd\ufffd" {
		t.Errorf("the title is %q", img.texts[0])
	}
}

func TestErrors(t *testing.T) {
	p := proftest.Mixed()
	if err := Write(io.Discard, p, Options{SampleType: "none"}); err == nil {
		t.Error("a type of samples is drawn that is not there")
	}
	p.Sample[0].Value[0] = -1
	if err := Write(io.Discard, p, Options{}); !errors.Is(err, profile.ErrNegative) {
		t.Errorf("negative: %v", err)
	}
	p.Sample = nil
	if err := Write(io.Discard, p, Options{}); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("empty: %v", err)
	}
}

// TestLarge wants an image that is small, whatever the profile.
func TestLarge(t *testing.T) {
	var out bytes.Buffer
	if err := Write(&out, proftest.Random(1, 3000), Options{SampleType: "samples"}); err != nil {
		t.Fatal(err)
	}
	if img := parse(t, out.Bytes()); img.count > mostNodes || !strings.Contains(fmt.Sprint(img.texts), "left out") {
		t.Errorf("%d frames: %q", img.count, img.texts[len(img.texts)-1])
	}
}
