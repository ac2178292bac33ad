package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
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

// A monitor skips events, and passes files.
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
		t.Error("a command to a monitor that is closed succeeded")
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
		t.Errorf("qemu has received the messages %v, %v; want one with a file", messages, err)
	}
}

// fakeMonitor returns a monitor whose qemu has sent everything already, and qemu's end.
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

// FuzzMonitor reads nonsense from qemu.
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

// A snapshot is not passed to another version of qemu.
func TestOtherVersion(t *testing.T) {
	const qemu = `echo '{"QMP": {"version": "new"}}' >&4; echo '{"return": {}}' >&4; exec cat <&5`
	m := &machine{config: session.Machine{VMM: []string{"sh", "-c", qemu}}, dead: make(chan struct{}), port: os.Stdin}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err = m.load(f, &snapshot{key: newKey(), version: `"old"`}); err == nil || !strings.Contains(err.Error(), "another version") {
		t.Errorf("got %v, want that the version differs", err)
	}
	if text := m.console.text(); text != "none" {
		t.Errorf("qemu has received %q", text)
	}
}
