package session

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// half is one end of an in-memory stream. Each direction is a separate pipe.
type half struct {
	io.Reader
	io.Writer
	close func() error
}

func (h half) CloseWrite() error { return h.close() }
func (h half) Close() error      { return h.close() }

// end closes the guest's end, which cannot fail.
func (h half) end() { _ = h.close() }

// pair returns both ends of a stream.
func pair() (host, guest half) {
	hr, gw := io.Pipe()
	gr, hw := io.Pipe()
	return half{hr, hw, func() error { return errors.Join(hw.Close(), hr.CloseWithError(net.ErrClosed)) }},
		half{gr, gw, func() error { return gw.Close() }}
}

// fakeGuest calls serve with the guest's ends of a session's streams, in the order in which the host opens them.
func fakeGuest(serve func(open Open, s half)) func() (Stream, error) {
	return func() (Stream, error) {
		host, guest := pair()
		go func() {
			var open Open
			if err := Read(guest, MaxShort, &open); err != nil {
				return
			}
			serve(open, guest)
		}()
		return host, nil
	}
}

// TestRun runs a program in a guest that echoes orders and input.
func TestRun(t *testing.T) {
	orders := make(chan Order, 1)
	orders <- Order{Signal: 10}
	input := make(chan string, 1)
	dial := fakeGuest(func(open Open, s half) {
		defer s.end()
		switch open.Kind {
		case Stdin:
			data, _ := io.ReadAll(s)
			input <- string(data)
		case Stdout:
			_, _ = io.WriteString(s, strings.Repeat("line\n", 10_000))
		case Stderr:
			_, _ = io.WriteString(s, "trouble\n")
		case Sync:
			t.Error("the program's session has a stream that is not the program's")
		case Control:
			var p Program
			if err := Read(s, MaxProgram, &p); err != nil || p.Args[0] != "program" {
				t.Errorf("the guest read %+v, %v", p, err)
			}
			_ = Write(s, Report{Started: true})
			var o Order
			if err := Read(s, MaxShort, &o); err != nil || o.Signal != 10 {
				t.Errorf("the guest read %+v, %v", o, err)
			}
			if got := <-input; got != "some input" {
				t.Errorf("the guest read %q from stdin", got)
			}
			_ = Write(s, Report{Exit: &Exit{Code: 7}})
		}
	})
	var out, errs bytes.Buffer
	started := false
	exit, err := Run(dial, Program{Args: []string{"program"}, Stdin: true}, Streams{strings.NewReader("some input"), &out, &errs}, orders, func() { started = true })
	if err != nil || exit.Code != 7 || !started {
		t.Errorf("got %+v, %v, started %t", exit, err, started)
	}
	if out.Len() != 50_000 || errs.String() != "trouble\n" {
		t.Errorf("got %d bytes of output, and %q", out.Len(), errs.String())
	}
}

// TestHostileGuest checks that Run returns no matter what a guest answers.
func TestHostileGuest(t *testing.T) {
	huge := binary.BigEndian.AppendUint32(nil, 0xffffffff)
	framed := func(text string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	}
	for name, answer := range map[string][]byte{
		"nothing": nil, "huge": huge, "short": framed("{}")[:5], "no object": framed("[]"), "no JSON": framed("started"),
		"started, then nothing": framed(`{"started":true}`), "started, then garbage": append(framed(`{"started":true}`), huge...),
		"no exit": append(framed(`{"started":true}`), framed(`{}`)...),
	} {
		dial := fakeGuest(func(open Open, s half) {
			defer s.end()
			if open.Kind == Control {
				var p Program
				_ = Read(s, MaxProgram, &p)
				_, _ = s.Write(answer)
			}
		})
		exit, err := Run(dial, Program{Args: []string{"program"}}, Streams{nil, io.Discard, io.Discard}, nil, func() {})
		if err == nil {
			t.Errorf("%s: got exit %+v, want an error", name, exit)
		}
	}
	refuse := fakeGuest(func(open Open, s half) {
		defer s.end()
		if open.Kind == Control {
			var p Program
			_ = Read(s, MaxProgram, &p)
			_ = Write(s, Report{Error: "no such program", Invalid: true})
		}
	})
	_, err := Run(refuse, Program{Args: []string{"program"}}, Streams{nil, io.Discard, io.Discard}, nil, func() {})
	var start *StartError
	if !errors.As(err, &start) || !start.Invalid || start.Text != "no such program" {
		t.Errorf("got %v, want the guest's reason", err)
	}
}

// FuzzRead checks that Read never reads more than its limit, and that it reads what Write writes.
func FuzzRead(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, '{', '}'})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 15, '{', '"', 's', 't', 'a', 'r', 't', 'e', 'd', '"', ':', 't', 'r', 'u', 'e', '}'})
	f.Fuzz(func(t *testing.T, data []byte) {
		const limit = 64
		r := bytes.NewReader(data)
		var report Report
		if err := Read(r, limit, &report); err != nil {
			if used := len(data) - r.Len(); used > limit+4 {
				t.Errorf("read %d bytes of a message whose limit is %d", used, limit)
			}
			return
		}
		var out bytes.Buffer
		if err := Write(&out, report); err != nil {
			t.Fatal(err)
		}
		var again Report
		if err := Read(&out, MaxShort, &again); err != nil || again.Started != report.Started || again.Error != report.Error {
			t.Errorf("%+v became %+v, %v", report, again, err)
		}
	})
}
