package process

import (
	"bufio"
	"encoding/binary"
	"net"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/internal/companion"
)

func dial(t *testing.T, d *Driver) *net.UnixConn {
	t.Helper()
	conn, err := companion.Dial(t.Context(), d.layout.run())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestHostileFrames sends frames that no driver would send, and checks that they do not harm the
// connected daemon or the supervisor.
func TestHostileFrames(t *testing.T) {
	h := newHost(t, nil)
	d, _ := h.recovered(t)
	task := program("sleep", "1000")
	if _, err := d.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	framed := func(body string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	}
	for _, bytes := range [][]byte{
		{},
		{0},
		{0xff, 0xff, 0xff, 0xff},
		framed(""), framed("null"), framed("{}"), framed("[1]"), framed(`{"op":"start"}`),
		framed(`{"op":"hello"}`), framed(`{"op":"exec"}`), framed(`{"op":"exec","command":["c2g="]}`),
		framed(`{"id":18446744073709551615,"op":"list"}`), framed(strings.Repeat("[", 100_000)), []byte("GET / HTTP/1.1\r\n\r\n"),
	} {
		conn := dial(t, d)
		if _, err := conn.Write(bytes); err != nil {
			t.Fatal(err)
		}
		if err := conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		var b [1024]byte
		for {
			if _, err := conn.Read(b[:]); err != nil {
				break
			}
		}
	}
	if status, err := d.Inspect(t.Context(), task.ID); err != nil || status.PID == 0 {
		t.Errorf("the task is no longer running: %+v, %v", status, err)
	}
	if _, err := d.Start(t.Context(), program("sleep", "1000")); err != nil {
		t.Errorf("Start: %v", err)
	}
}

// TestHostileRequests sends well-formed requests with invalid contents, as a newer daemon might.
func TestHostileRequests(t *testing.T) {
	h := newHost(t, nil)
	d, _ := h.recovered(t)
	conn := dial(t, d)
	in := bufio.NewReader(conn)
	ask := func(req *request) *reply {
		t.Helper()
		if err := companion.WriteFrame(conn, req); err != nil {
			t.Fatal(err)
		}
		r := new(reply)
		if err := companion.ReadFrame(in, r); err != nil {
			t.Fatalf("%+v: %v", req, err)
		}
		return r
	}
	if r := ask(&request{Op: opHello, Hello: &hello{Version: protocolVersion}}); r.Hello == nil {
		t.Fatalf("got %+v, want a hello", r)
	}
	for _, req := range []*request{
		{Op: opStart},
		{Op: opStart, Start: &spec{}},
		{Op: opStart, Start: &spec{ID: driver.TaskID{Machine: "../../../../tmp", Boot: 1}, Command: bytesOf([]string{"sh"})}},
		{Op: opStart, Start: &spec{ID: driver.TaskID{Machine: someMachine, Boot: -1}, Command: bytesOf([]string{"sh"})}},
		{Op: opStart, Start: &spec{ID: driver.TaskID{Machine: someMachine, Boot: 1}}},
		{Op: opStart, Start: &spec{ID: driver.TaskID{Machine: someMachine, Boot: 1}, Command: bytesOf([]string{"true"}), Network: &driver.Network{Namespace: "/etc/passwd"}}},
		{Op: opStart, Start: &spec{ID: driver.TaskID{Machine: someMachine, Boot: 1}, Command: bytesOf([]string{"true"}), Mounts: []driver.Mount{{Source: "etc", Target: "../etc"}}}},
		{Op: opUsage, Task: driver.TaskID{Machine: "x"}},
		{Op: opDestroy, Machine: "../.."},
		{Op: opWatch, Machine: "/etc"},
		{Op: opSignal, Task: driver.TaskID{Machine: "x"}, Signal: 9},
		{Op: opStop, Task: driver.TaskID{Machine: "x"}, Signal: 9},
		{Op: opHello},
		{Op: "format the disk"},
	} {
		if r := ask(req); r.Error == nil {
			t.Errorf("%+v was accepted: %+v", req, r)
		}
	}
	bad := driver.Status{ID: driver.TaskID{Machine: "../x", Boot: 1}, Exit: &bourse.Exit{}}
	if r := ask(&request{Op: opHold, Hold: []driver.Status{bad, {}}}); r.Error != nil {
		t.Errorf("hold: %+v", r.Error)
	}
	if r := ask(&request{Op: opList}); len(r.List) != 0 {
		t.Errorf("the supervisor has tasks %+v, want none", r.List)
	}
}

// TestOtherVersion checks that a daemon and a supervisor from incompatible releases report the
// mismatch and leave the tasks alone.
func TestOtherVersion(t *testing.T) {
	h := newHost(t, nil)
	d, _ := h.recovered(t)
	conn := dial(t, d)
	if err := companion.WriteFrame(conn, &request{Op: opHello, Hello: &hello{Version: protocolVersion + 1}}); err != nil {
		t.Fatal(err)
	}
	r := new(reply)
	if err := companion.ReadFrame(bufio.NewReader(conn), r); err != nil || r.Hello == nil || r.Hello.Version != protocolVersion || r.Hello.PID != d.pid {
		t.Errorf("got %+v, %v, want the supervisor's version and process", r, err)
	}
	if _, err := d.Start(t.Context(), program("sleep", "1000")); err != nil {
		t.Errorf("the connected daemon was affected: %v", err)
	}
}

// TestNewerDaemonRefusesOlderSupervisor connects a driver to an older supervisor, which the test
// imitates.
func TestNewerDaemonRefusesOlderSupervisor(t *testing.T) {
	dir := t.TempDir()
	l, err := newLayout(dir)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := companion.Listen(l.run())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.AcceptUnix()
		if err != nil {
			return
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		req := new(request)
		if companion.ReadFrame(in, req) == nil {
			_ = companion.WriteFrame(conn, &reply{ID: req.ID, Hello: &helloReply{Version: 0, PID: 4711}})
		}
		_ = companion.ReadFrame(in, req) // until the driver disconnects
	}()
	d := New(Config{Dir: dir, Supervisor: supervisorCommand})
	defer d.Close()
	_, err = d.Recover(t.Context())
	if bourse.CodeOf(err) != bourse.CodeUnavailable || !strings.Contains(err.Error(), "4711") {
		t.Errorf("got %v, want unavailable with the process id", err)
	}
}
