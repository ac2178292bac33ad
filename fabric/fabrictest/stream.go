package fabrictest

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/throttle"
)

// both returns a request and the pipe that feeds its body, so that a test can write the body while
// it reads the reply.
func both() (*http.Request, *io.PipeWriter) {
	r, w := io.Pipe()
	return &http.Request{Method: http.MethodPost, URL: &url.URL{Path: path}, Header: http.Header{}, Body: r, ContentLength: -1}, w
}

// bothWays returns a handler that begins its reply before it has read the body.
func bothWays(t *testing.T, h func(w io.Writer, r *http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		throttle.StreamBody(r)
		if err := errors.Join(control.EnableFullDuplex(), control.Flush()); err != nil {
			t.Errorf("full duplex: %v", err)
		}
		// Without this deadline, a server may wait for the rest of the body.
		defer func() { _ = control.SetReadDeadline(time.Unix(1, 0)) }()
		h(flusher{w, control}, r)
	})
}

type flusher struct {
	io.Writer
	control *http.ResponseController
}

func (f flusher) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	return n, errors.Join(err, f.control.Flush())
}

// noise returns a large number of pseudorandom bytes, which depend only on the seed.
func noise(seed byte) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{seed}), large)
}

func sumOf(r io.Reader) (sum [32]byte, n int64, err error) {
	h := sha256.New()
	n, err = io.Copy(h, r)
	return [32]byte(h.Sum(nil)), n, err
}

const large = 16 << 20 // more than all buffers and windows along the path can hold

func testBothWays(t *testing.T, n Network) {
	there, _, _ := sumOf(noise(1))
	back, _, _ := sumOf(noise(2))
	w := n.Serve("w1", bothWays(t, func(w io.Writer, r *http.Request) {
		var wg sync.WaitGroup
		wg.Go(func() {
			if got, n, err := sumOf(r.Body); err != nil || got != there {
				t.Errorf("the worker received %d bytes (%v), want the bytes that were sent", n, err)
			}
		})
		if _, err := io.Copy(w, noise(2)); err != nil {
			t.Errorf("reply: %v", err)
		}
		wg.Wait()
	}))
	req, body := both()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		_, err := io.Copy(body, noise(1))
		if err := errors.Join(err, body.Close()); err != nil {
			t.Errorf("body: %v", err)
		}
	})
	resp, err := n.Fabric().Call(soon(t), w.Member, req)
	if err != nil {
		t.Fatalf("call: %v", err)
	}
	defer resp.Body.Close()
	if got, n, err := sumOf(resp.Body); err != nil || got != back {
		t.Errorf("got a reply of %d bytes (%v), want the bytes that the worker sent", n, err)
	}
}

func testTurns(t *testing.T, n Network) {
	w := n.Serve("w1", bothWays(t, func(w io.Writer, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
		_, _ = io.WriteString(w, "!") // sent after the request's body has ended
	}))
	req, body := both()
	resp, err := n.Fabric().Call(soon(t), w.Member, req)
	if err != nil {
		t.Fatalf("call: %v", err)
	}
	defer resp.Body.Close()
	var got [4]byte
	for _, word := range []string{"ping", "pong", "done"} { // send each word only after the previous one was echoed
		if _, err := io.WriteString(body, word); err != nil {
			t.Fatalf("write %q: %v", word, err)
		}
		if _, err := io.ReadFull(resp.Body, got[:]); err != nil || string(got[:]) != word {
			t.Fatalf("got %q (%v), want %q", got, err, word)
		}
	}
	body.Close()
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "!" {
		t.Errorf("after the body's end: got %q (%v), want \"!\"", rest, err)
	}
}

func testRefusedStream(t *testing.T, n Network) {
	w := n.Serve("w1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fabric.WriteFailure(w, bourse.Errorf(bourse.CodeNotFound, "no such machine"))
	}))
	_, err := Attach(soon(t), n.Fabric(), w.Member, machine, fabric.ExecStart{Command: []string{"sh"}, Stdin: true})
	wantCode(t, err, bourse.CodeNotFound)
	elsewhere := w.Member
	elsewhere.ID = "w0"
	_, err = Attach(soon(t), n.Fabric(), elsewhere, machine, fabric.ExecStart{Command: []string{"sh"}, Stdin: true})
	wantCode(t, err, bourse.CodeUnavailable)
}

func testStreamCallerLeaves(t *testing.T, n Network) {
	for name, leave := range map[string]func(*http.Response, *io.PipeWriter, context.CancelFunc){
		"its context ends":    func(_ *http.Response, _ *io.PipeWriter, end context.CancelFunc) { end() },
		"it closes the reply": func(r *http.Response, _ *io.PipeWriter, _ context.CancelFunc) { r.Body.Close() },
		"it aborts the body":  func(_ *http.Response, b *io.PipeWriter, _ context.CancelFunc) { b.CloseWithError(io.ErrNoProgress) },
	} {
		left := make(chan struct{})
		w := n.Serve("w1", bothWays(t, func(_ io.Writer, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err == nil {
				t.Errorf("%s: the worker read the body up to EOF, want an error", name)
			}
			close(left)
		}))
		ctx, end := context.WithCancel(soon(t))
		req, body := both()
		resp, err := n.Fabric().Call(ctx, w.Member, req)
		if err != nil {
			t.Fatalf("%s: call: %v", name, err)
		}
		leave(resp, body, end)
		await(t, "the handler to notice: "+name, left)
		resp.Body.Close()
		body.Close()
		end()
	}
}

func testStreamWorkerDies(t *testing.T, n Network) {
	began := make(chan struct{}, 2)
	var w Worker
	for name, die := range map[string]func(){"the handler aborts": nil, "the worker is killed": func() { w.Kill() }} {
		w = n.Serve("w1", bothWays(t, func(w io.Writer, r *http.Request) {
			_, _ = io.WriteString(w, "the beginning")
			began <- struct{}{}
			if die != nil {
				_, _ = io.Copy(io.Discard, r.Body) // until the connection breaks
			}
			panic(http.ErrAbortHandler)
		}))
		req, body := both()
		resp, err := n.Fabric().Call(soon(t), w.Member, req)
		if err != nil {
			t.Fatalf("%s: call: %v", name, err)
		}
		<-began
		if die != nil {
			die()
		}
		if got, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("%s: got reply %q without an error", name, got)
		}
		resp.Body.Close()
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			for err := error(nil); err == nil; {
				_, err = body.Write(make([]byte, 1<<10))
			}
		}()
		await(t, "the body to be closed: "+name, gone)
	}
}

// testSlowReaders checks that a stream that nobody reads blocks only its own sender.
func testSlowReaders(t *testing.T, n Network) {
	release := make(chan struct{})
	idle := bothWays(t, func(w io.Writer, r *http.Request) {
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = io.Copy(w, endless{}) }) // until the caller disconnects
		<-release
		_, _ = io.Copy(io.Discard, r.Body)
		wg.Wait()
	})
	w := n.Serve("w1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength < 0 {
			idle.ServeHTTP(w, r)
			return
		}
		_, _ = io.Copy(w, r.Body)
	}))
	ctx, end := context.WithCancel(soon(t))
	defer end()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	defer close(release)
	stuck := make(chan struct{}, 8)
	for range cap(stuck) {
		req, body := both()
		resp, err := n.Fabric().Call(ctx, w.Member, req)
		if err != nil {
			t.Fatalf("call: %v", err)
		}
		defer resp.Body.Close()
		wg.Go(func() {
			defer context.AfterFunc(ctx, func() { body.Close() })()
			blocked := time.AfterFunc(200*time.Millisecond, func() { stuck <- struct{}{} })
			for block := make([]byte, 32<<10); ; blocked.Reset(200 * time.Millisecond) {
				if _, err := body.Write(block); err != nil {
					blocked.Stop()
					return
				}
			}
		})
	}
	for range cap(stuck) {
		select {
		case <-stuck: // the worker does not read the body yet
		case <-time.After(patience):
			t.Fatal("writes to a body that nobody reads do not block")
		}
	}
	text := make([]byte, 2<<20)
	for i := range text {
		text[i] = 'x'
	}
	if err := echo(soon(t), n.Fabric(), w.Member, string(text)); err != nil {
		t.Errorf("call while other streams are blocked: %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
