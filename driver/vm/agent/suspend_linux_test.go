package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse/driver/vm/session"
)

// A reader of a sealed snapshot notices every change, and every missing or additional byte.
func TestSeal(t *testing.T) {
	for _, size := range []int{0, 1, chunkSize - 1, chunkSize, chunkSize + 1, 3 * chunkSize} {
		key, plain, sealed, out := newKey(), bytes.Repeat([]byte("memory"), size/6+1)[:size], bytes.Buffer{}, bytes.Buffer{}
		if err := seal(&sealed, bytes.NewReader(plain), key, int64(size)); err != nil {
			t.Fatal(err)
		}
		if err := unseal(&out, bytes.NewReader(sealed.Bytes()), key); err != nil || !bytes.Equal(out.Bytes(), plain) {
			t.Errorf("%d bytes: %v", size, err)
		}
		if size >= 6 && bytes.Contains(sealed.Bytes(), []byte("memory")) {
			t.Errorf("%d bytes are readable", size)
		}
		damaged := map[string][]byte{"empty": nil, "additional": append(bytes.Clone(sealed.Bytes()), 0)}
		for name, at := range map[string]int{"first": 0, "middle": sealed.Len() / 2, "last": sealed.Len() - 1} {
			changed := bytes.Clone(sealed.Bytes())
			changed[at] ^= 1
			damaged[name+" changed"], damaged["only up to the "+name] = changed, sealed.Bytes()[:at]
		}
		if chunk := chunkSize + key.Overhead(); sealed.Len() > 2*chunk {
			damaged["without its end"] = sealed.Bytes()[:chunk]
			damaged["without its beginning"] = sealed.Bytes()[chunk:]
			damaged["repeated chunk"] = append(bytes.Clone(sealed.Bytes()[:chunk]), sealed.Bytes()...)
		}
		for name, data := range damaged {
			if err := unseal(io.Discard, bytes.NewReader(data), key); !errors.Is(err, errDamaged) {
				t.Errorf("%d bytes, %s: got %v", size, name, err)
			}
		}
		if err := unseal(io.Discard, &sealed, newKey()); !errors.Is(err, errDamaged) {
			t.Errorf("%d bytes with another key: got %v", size, err)
		}
		if err := seal(io.Discard, bytes.NewReader(plain), key, int64(size)-1); err == nil {
			t.Errorf("%d bytes did not exceed a lower limit", size)
		}
	}
}

// A monitor skips events and passes files to qemu.
func TestMonitor(t *testing.T) {
	m, qemu := fakeMonitor(t, `{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "Debian"}, "capabilities": ["oob"]}}
{"event": "RESUME", "timestamp": {"seconds": 1, "microseconds": 2}}
{"return": {}}
{"timestamp": {}, "event": "STOP", "data": {"return": 1}}
{"return": {"status": "active", "ram": {"total": 1}}}
{"return": {"status": "completed"}}
{"error": {"class": "GenericError", "desc": "no such thing"}}
{"return": {}}
`)
	if m.version == "" {
		t.Error("the monitor has no version")
	}
	if err := m.await("query-migrate", func(s string) bool { return s == "completed" }); err != nil {
		t.Error(err)
	}
	if err := m.run("nothing", nil, nil); err == nil || !strings.Contains(err.Error(), "no such thing") {
		t.Errorf("got %v, want qemu's error", err)
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := m.run("getfd", map[string]any{"fdname": "file"}, nil, f); err != nil {
		t.Error(err)
	}
	if err := m.run("stop", nil, nil); err == nil {
		t.Error("a command to a closed monitor succeeded")
	}
	conn, err := net.FileConn(qemu)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	data, rights := make([]byte, 4096), make([]byte, 64)
	n, oob, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(data, rights)
	for err == nil && oob == 0 && n > 0 {
		n, oob, _, _, err = conn.(*net.UnixConn).ReadMsgUnix(data, rights)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:oob])
	if err != nil || len(messages) != 1 {
		t.Errorf("qemu received the messages %v, %v; want a message with a file", messages, err)
	}
}

// fakeMonitor returns a monitor of a qemu that has already sent all its messages, and qemu's end of
// the connection.
func fakeMonitor(t *testing.T, text string) (*monitor, *os.File) {
	t.Helper()
	conn, qemu, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(conn.Close(), qemu.Close()) })
	if _, err := qemu.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := unix.Shutdown(int(qemu.Fd()), unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	m, err := newMonitor(conn)
	if err != nil {
		t.Fatal(err)
	}
	return m, qemu
}

// FuzzMonitor sends arbitrary data from qemu to the monitor.
func FuzzMonitor(f *testing.F) {
	for _, seed := range []string{"", "{}", "null", "[]", "{\"QMP\": null}\n", "{\"QMP\": {}}\n", `{"return": null}`, `{"error": {}}`, strings.Repeat("[", 1000), strings.Repeat(" ", 2*maxLine)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for lines, n := newLines(strings.NewReader(text)), 0; ; n++ {
			if _, err := next(lines); err != nil {
				return
			}
			if n > len(text) {
				t.Fatal("more messages than bytes")
			}
		}
	})
}

// fakeVMM is a qemu that reads a snapshot, and then answers two commands.
const fakeVMM = `echo '{"QMP": {"version": "new"}}' >&4; echo '{"return": {}}' >&4; cat <&5; echo '{"return": {"status": "paused"}}' >&4
	echo '{"return": {}}' >&4; exec sleep 1000`

// readingVMM is a qemu that reads a snapshot until it is killed.
const readingVMM = `echo '{"QMP": {"version": "new"}}' >&4; echo '{"return": {}}' >&4; exec cat <&5`

// newSuspended returns a machine that is suspended.
func newSuspended(t *testing.T, version string) *machine {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "snapshot")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{
		config: session.Machine{VMM: []string{"sh", "-c", fakeVMM}}, dead: make(chan struct{}), port: f, orders: make(chan session.Order, 1),
		snapshot: &snapshot{file: f, key: newKey(), version: version},
	}
	if err := seal(f, strings.NewReader("the guest's memory"), m.snapshot.key, 100); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if m.vmm != nil {
			m.vmm.kill()
		}
		_ = f.Close() // the machine may have closed it
	})
	return m
}

func (m *machine) hasEnded() bool {
	select {
	case <-m.dead:
		return true
	default:
		return false
	}
}

// A machine whose qemu cannot be started remains suspended, and can be resumed later.
func TestResumeAgain(t *testing.T) {
	m := newSuspended(t, `"new"`)
	vmm := m.config.VMM
	for _, broken := range [][]string{{"/nonexistent"}, {"false"}} {
		m.config.VMM = broken
		if r := m.control(session.Resume); r.Error == "" || !r.Retry || m.hasEnded() {
			t.Errorf("%q: got report %+v, want the machine to remain suspended", broken, r)
		}
	}
	m.config.VMM = vmm
	if r := m.control(session.Resume); r.Error != "" || m.hasEnded() || m.vmm == nil || m.snapshot != nil {
		t.Fatalf("got report %+v, want the machine to be resumed", r)
	}
	m.vmm.kill() // the console is complete once qemu has exited
	m.vmm = nil
	if text := m.console.text(); text != "the guest's memory" {
		t.Errorf("qemu received %q", text)
	}
}

// The first process in a machine's container does not exit before an agent that has requested a resume, because its
// exit would kill that agent.
func TestReplyBeforeExit(t *testing.T) {
	m := newSuspended(t, `"old"`)
	m.config.VMM = []string{"sh", "-c", readingVMM}
	path := filepath.Join(t.TempDir(), "control")
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go m.serveControl(l)
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := session.Write(conn, session.Resume); err != nil {
		t.Fatal(err)
	}
	<-m.dead
	exited := make(chan struct{})
	go func() {
		m.awaitReplies()
		close(exited)
	}()
	var r session.Report
	if err := session.Read(conn, session.MaxShort, &r); err != nil || !strings.Contains(r.Error, "another version") {
		t.Errorf("got report %+v, %v, want an error about qemu's version", r, err)
	}
	select {
	case <-exited:
		t.Error("the first process exited before the agent, want it to wait")
	default:
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	<-exited
}

// A machine whose snapshot cannot be used ends.
func TestLostSnapshot(t *testing.T) {
	for name, test := range map[string]struct {
		version, want string
		change        func(*os.File) error
	}{
		"another qemu": {`"old"`, "another version", func(*os.File) error { return nil }},
		"changed":      {`"new"`, "damaged", func(f *os.File) error { _, err := f.WriteAt([]byte("x"), 3); return err }},
		"incomplete":   {`"new"`, "damaged", func(f *os.File) error { return f.Truncate(20) }},
		"empty":        {`"new"`, "damaged", func(f *os.File) error { return f.Truncate(0) }},
	} {
		m := newSuspended(t, test.version)
		if err := test.change(m.snapshot.file); err != nil {
			t.Fatal(err)
		}
		m.config.VMM = []string{"sh", "-c", readingVMM}
		if r := m.control(session.Resume); !strings.Contains(r.Error, test.want) || r.Retry || !m.hasEnded() {
			t.Errorf("%s: got report %+v, want the machine to end with %s", name, r, test.want)
		}
		if text := m.console.text(); text != "none" {
			t.Errorf("%s: qemu received %q", name, text)
		}
	}
}
