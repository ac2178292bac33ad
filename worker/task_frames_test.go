package worker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// rawProgram returns a program that passes each connection to serve.
func rawProgram(t *testing.T, serve func(net.Conn, *bufio.Reader)) *program {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	t.Cleanup(func() {
		_ = ln.Close()
		group.Wait()
	})
	group.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				defer conn.Close()
				serve(conn, bufio.NewReader(conn))
			})
		}
	})
	return &program{Protocol: bourse.TaskFrames, Listener: ln}
}

// readCall reads a call and returns its id, or "" at the end of the connection.
func readCall(r *bufio.Reader) (id string) {
	line, err := r.ReadString('\n')
	var order string
	var deadline, length int64
	if _, scan := fmt.Sscanf(line, "CALL %s %s %d %d", &id, &order, &deadline, &length); err != nil || scan != nil {
		return ""
	}
	_, _ = io.CopyN(io.Discard, r, length)
	return id
}

func TestAWarmTaskIsAnsweredOverFrames(t *testing.T) {
	p := newProgramOf(t, bourse.TaskFrames, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		deadline, err := time.Parse(time.RFC3339Nano, r.Header.Get("Bourse-Deadline"))
		if left := time.Until(deadline); err != nil || left < time.Second || left > 10*time.Second {
			t.Errorf("deadline %s, %v", deadline, err)
		}
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		if string(body) == "no" {
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = w.Write([]byte("got " + string(body)))
	})
	h := newHost(t, nil)
	h.place(p.Warmed("echo", 1))
	var parts []string
	order := call(t, "echo", 3, func(o *bourse.Order) {
		o.Task.Type = "text/plain; charset=utf-8"
		o.Task.Output = func(part []byte) { parts = append(parts, string(part)) }
	})
	got := h.result(t.Context(), order)
	if ended(got) != "answered 0 got payload" || got.Type != order.Task.Type || got.Status != 200 || p.Times(order.ID) != 1 {
		t.Errorf("got %+v", got)
	}
	if strings.Join(parts, "|") != "|got payload" {
		t.Errorf("parts %q", parts)
	}
	got = h.result(t.Context(), call(t, "echo", 3, func(o *bourse.Order) { o.Task.Payload = []byte("no") }))
	if ended(got) != "failed 1 got no" || got.Status != http.StatusTeapot || got.Type != "" {
		t.Errorf("got %+v", got)
	}
	if n := h.slots(); n != 0 {
		t.Errorf("%d slots were not released", n)
	}
	h.verify()
}

// If a program violates the frame protocol, the result explains what happened.
func TestProgramsThatBreakTheirFrames(t *testing.T) {
	say := func(text string) func(net.Conn, *bufio.Reader) {
		return func(c net.Conn, r *bufio.Reader) {
			for id := readCall(r); id != ""; id = readCall(r) {
				_, _ = c.Write([]byte(strings.ReplaceAll(text, "ID", id)))
			}
		}
	}
	for name, c := range map[string]struct {
		serve      func(net.Conn, *bufio.Reader)
		want, text string
	}{
		"hangs":               {func(_ net.Conn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) }, "timeout -1 ", "stopped after its timeout of 50ms"},
		"does not read":       {nil, "timeout -1 ", "stopped after its timeout of 50ms"},
		"breaks off":          {func(_ net.Conn, r *bufio.Reader) { readCall(r) }, "broken -1 ", "EOF"},
		"dies in the middle":  {func(c net.Conn, r *bufio.Reader) { _, _ = fmt.Fprintf(c, "DONE %s 200 100 -\nhalf", readCall(r)) }, "broken -1 ", "EOF"},
		"answers 10 MB":       {say("DONE ID 200 10485760 -\n"), "broken -1 ", "at most 1048576 bytes"},
		"talks nonsense":      {say("\x00\x01\x02\r\n\r\n"), "broken -1 ", "malformed"},
		"talks HTTP":          {say("HTTP/1.1 400 Bad Request\r\n"), "broken -1 ", "malformed"},
		"has an endless line": {say("DONE ID 200 0 " + strings.Repeat("a", 1<<20)), "broken -1 ", "more than 512 bytes"},
		"answers another":     {say("DONE 1000 200 0 -\n"), "broken -1 ", "unknown call 1000"},
		"has an odd type":     {say("DONE ID 200 2 <script>\nhi"), "answered 0 hi", ""},
		"answers twice":       {say("DONE ID 200 2 -\nhiDONE ID 200 2 -\nho"), "answered 0 hi", ""},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(context.Background())
			t.Cleanup(stop)
			serve := c.serve
			if serve == nil {
				serve = func(net.Conn, *bufio.Reader) { <-ctx.Done() }
			}
			p := rawProgram(t, serve)
			h := newHost(t, nil)
			h.place(p.Warmed("bad", 1))
			limit := 30 * time.Second
			if strings.HasPrefix(c.want, "timeout") {
				limit = 50 * time.Millisecond
			}
			for range 2 { // the second call checks that the place on the machine is free again
				got := h.result(t.Context(), call(t, "bad", 10, within(limit), func(o *bourse.Order) { o.Task.Payload = make([]byte, bourse.MaxPayload) }))
				if ended(got) != c.want || !strings.Contains(got.Error, c.text) {
					t.Errorf("got %s: %s, want %s: … %s", ended(got), got.Error, c.want, c.text)
				}
				if n := h.slots(); n != 0 {
					t.Errorf("%d slots were not released", n)
				}
			}
			h.verify()
			stop()
		})
	}
}

// If a connection breaks, only its own calls fail. Calls to another machine continue,
// and the next call opens a new connection.
func TestABrokenConnectionFailsOnlyItsCalls(t *testing.T) {
	var mu sync.Mutex
	first := true
	arrived := make(chan struct{}, 8)
	breakNow := make(chan struct{})
	bad := rawProgram(t, func(c net.Conn, r *bufio.Reader) {
		mu.Lock()
		breaks := first
		first = false
		mu.Unlock()
		for id := readCall(r); id != ""; id = readCall(r) {
			if !breaks {
				_, _ = fmt.Fprintf(c, "DONE %s 200 4 -\nhere", id)
				continue
			}
			arrived <- struct{}{}
			if id == "3" {
				<-breakNow
				return
			}
		}
	})
	release := make(chan struct{})
	good := newProgramOf(t, bourse.TaskFrames, func(w http.ResponseWriter, _ *http.Request) {
		<-release
		_, _ = w.Write([]byte("fine"))
	})
	h := newHost(t, nil)
	h.place(bad.Warmed("bad", 3))
	h.place(good.Warmed("good", 1))
	var broken, group sync.WaitGroup
	for range 3 {
		broken.Go(func() {
			if got := h.result(t.Context(), call(t, "bad", 1)); got.End != bourse.TaskBroken {
				t.Errorf("call on the broken connection: %+v", got)
			}
		})
	}
	group.Go(func() {
		if got := h.result(t.Context(), call(t, "good", 1)); ended(got) != "answered 0 fine" {
			t.Errorf("call to the other machine: %+v", got)
		}
	})
	for range 3 {
		<-arrived
	}
	<-good.Arrived
	close(breakNow)
	broken.Wait()
	close(release)
	group.Wait()
	if got := h.result(t.Context(), call(t, "bad", 1)); ended(got) != "answered 0 here" {
		t.Errorf("next call: %+v", got)
	}
	h.verify()
}

// When a machine stops, its connection is closed. Its next boot gets a new one.
func TestAStoppedMachinesConnectionIsClosed(t *testing.T) {
	opened, closed := make(chan struct{}, 8), make(chan struct{}, 8)
	p := rawProgram(t, func(c net.Conn, r *bufio.Reader) {
		opened <- struct{}{}
		for id := readCall(r); id != ""; id = readCall(r) {
			_, _ = fmt.Fprintf(c, "DONE %s 200 2 -\nhi", id)
		}
		closed <- struct{}{}
	})
	h := newHost(t, nil)
	m := h.place(p.Warmed("echo", 2))
	for range 2 {
		h.result(t.Context(), call(t, "echo", 1))
		h.must(h.stop2(m.ID))
		<-closed
		h.must(h.machines.Start(t.Context(), m.ID, fabric.MachineAction{}))
		h.reaches(m.ID, bourse.StateStarted)
	}
	if len(opened) != 2 {
		t.Errorf("%d connections, want one for each boot", len(opened))
	}
}
