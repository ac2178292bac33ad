package fabric_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

func frame(kind byte, data string) string {
	return string(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(data)))) + data
}

// execed serves a body as an exec stream and returns the reply.
func execed(body io.Reader, run func(context.Context, fabric.ExecIO) (bourse.Exit, error)) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	fabric.ServeExec(w, httptest.NewRequest(http.MethodPost, "/", body), run)
	return w
}

func TestServeExecRefuses(t *testing.T) {
	tests := map[string]string{
		"nothing":                     "",
		"no frame":                    "<html>",
		"input":                       frame(2, "ls"),
		"a command that is not JSON":  frame(1, "ls"),
		"no command":                  frame(1, "{}"),
		"an empty command":            frame(1, `{"command":[""]}`),
		"half a command":              frame(1, `{"command":["ls"]}`)[:9],
		"a command of the wrong type": frame(1, `{"command":"ls"}`),
		"a size out of range":         frame(1, `{"command":["ls"],"terminal":{"rows":65536}}`),
	}
	for name, sent := range tests {
		t.Run(name, func(t *testing.T) {
			w := execed(strings.NewReader(sent), func(context.Context, fabric.ExecIO) (bourse.Exit, error) {
				t.Error("the command was run")
				return bourse.Exit{}, nil
			})
			if w.Code != http.StatusBadRequest {
				t.Errorf("got status %d: %s", w.Code, w.Body)
			}
		})
	}
}

// TestServeExecBreaks checks that invalid frames from the caller end the command.
func TestServeExecBreaks(t *testing.T) {
	const start = `{"command":["sh"],"stdin":true,"terminal":{}}`
	tests := map[string]string{
		"half a frame":          frame(2, "abc")[:7],
		"no frame":              "<html>",
		"a second command":      frame(1, start),
		"output":                frame(5, "x"),
		"a size of three bytes": frame(4, "abc"),
	}
	for name, sent := range tests {
		t.Run(name, func(t *testing.T) {
			var got string
			w := execed(strings.NewReader(frame(1, start)+frame(2, "in")+sent), func(ctx context.Context, e fabric.ExecIO) (bourse.Exit, error) {
				in, err := io.ReadAll(e.Stdin)
				if got = string(in); err == nil {
					t.Error("the input ended without an error")
				}
				<-ctx.Done()
				return bourse.Exit{}, context.Cause(ctx)
			})
			if got != "in" || !strings.Contains(w.Body.String(), `"code":"canceled"`) {
				t.Errorf("input %q, reply %q", got, w.Body)
			}
		})
	}
}

// TestServeExecResizes checks that a command that does not read sizes does not block its caller, and that a command can
// read the latest of many sizes.
func TestServeExecResizes(t *testing.T) {
	sent := frame(1, `{"command":["top"],"stdin":true,"terminal":{}}`)
	for i := range 1000 {
		sent += frame(4, string(binary.BigEndian.AppendUint16([]byte{0, 24}, uint16(i))))
	}
	execed(strings.NewReader(sent), func(_ context.Context, e fabric.ExecIO) (bourse.Exit, error) {
		if _, err := io.ReadAll(e.Stdin); err != nil { // the input ends after the sizes were sent
			t.Error(err)
		}
		if got := <-e.Resize; got.Cols != 999 {
			t.Errorf("got %v, want 999 columns", got)
		}
		return bourse.Exit{}, nil
	})
}

// TestServeExecPings checks that a disconnected caller is noticed even if the command neither writes nor reads.
func TestServeExecPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, caller := io.Pipe()
		defer caller.Close()
		go func() { _, _ = io.WriteString(caller, frame(1, `{"command":["sleep"]}`)) }()
		w := &dying{ResponseRecorder: httptest.NewRecorder(), at: time.Now().Add(40 * time.Second)}
		began := time.Now()
		fabric.ServeExec(w, httptest.NewRequest(http.MethodPost, "/", body), func(ctx context.Context, _ fabric.ExecIO) (bourse.Exit, error) {
			<-ctx.Done()
			caller.Close()
			return bourse.Exit{}, context.Cause(ctx)
		})
		if took := time.Since(began); took < 40*time.Second || took > time.Minute {
			t.Errorf("it took %s", took)
		}
		if got := w.Body.Len(); got != 2*5 {
			t.Errorf("%d bytes were sent before that, want two pings", got)
		}
	})
}

// dying is a connection that breaks after some time.
type dying struct {
	*httptest.ResponseRecorder
	at time.Time
}

func (d *dying) Write(p []byte) (int, error) {
	if time.Now().After(d.at) {
		return 0, net.ErrClosed
	}
	return d.ResponseRecorder.Write(p)
}

// FuzzServeExec serves arbitrary streams.
func FuzzServeExec(f *testing.F) {
	const start = `{"command":["sh"],"stdin":true,"terminal":{}}`
	f.Add(frame(1, start) + frame(2, "in") + frame(4, "\x00\x18\x00\x50") + frame(3, ""))
	f.Add(frame(1, start) + frame(3, "") + frame(2, "late") + frame(9, ""))
	f.Add(frame(1, `{"command":["ls"]}`) + frame(2, "unread"))
	f.Add("<html>")
	f.Fuzz(func(t *testing.T, sent string) {
		w := execed(strings.NewReader(sent), func(_ context.Context, e fabric.ExecIO) (bourse.Exit, error) {
			if e.Stdin == nil {
				return bourse.Exit{}, nil
			}
			_, err := io.Copy(e.Stdout, e.Stdin)
			return bourse.Exit{}, err
		})
		if w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
			t.Errorf("got status %d", w.Code)
		}
	})
}
