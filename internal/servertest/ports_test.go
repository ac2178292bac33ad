package servertest

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"syscall"
	"testing"
)

// Workers that run at the same time have different ranges.
func TestPorts(t *testing.T) {
	had := map[string]bool{}
	for range 2 {
		first, last := Ports(t)
		had[fmt.Sprintf("%d-%d", first, last)] = true
	}
	s := New(t, "w1", "serve", "worker")
	i := slices.Index(s.Args, "--ports")
	if i < 0 || len(had) != 2 || had[s.Args[i+1]] {
		t.Errorf("%v and a worker with %v", had, s.Args)
	}
}

// While a settled server is stopped, its port is not used for outgoing connections, and
// connections to the port are refused.
func TestHeldAddresses(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{TB: t, API: l.Addr().String(), Addr: "192.0.2.1:80"}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s.hold()
	other, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	from := net.Dialer{LocalAddr: l.Addr()}
	if c, err := from.DialContext(t.Context(), "tcp", other.Addr().String()); err == nil {
		t.Errorf("%s was given to a connection", c.LocalAddr())
		_ = c.Close()
	}
	if c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.API); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connected to it: %v, %v", c, err)
	}
	s.letGo()
	again, err := new(net.ListenConfig).Listen(t.Context(), "tcp", s.API)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}

// A server that was stopped or killed starts again at the same addresses, and the system has not
// used its ports for other connections in the meantime.
func TestAStoppedServerKeepsItsAddresses(t *testing.T) {
	for name, end := range map[string]func(*Server) error{"stop": (*Server).Stop, "kill": (*Server).Kill} {
		t.Run(name, func(t *testing.T) {
			l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := &Server{TB: t, API: l.Addr().String(), Addr: "192.0.2.1:80", Cmd: exec.Command("sleep", "1000")}
			s.Settle()
			if err := errors.Join(l.Close(), s.Cmd.Start()); err != nil {
				t.Fatal(err)
			}
			_ = end(s) // the error reports the signal
			at, ok := l.Addr().(*net.TCPAddr)
			if !ok {
				t.Fatalf("listened at %v", l.Addr())
			}
			fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer syscall.Close(fd)
			if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: at.Port, Addr: [4]byte{127, 0, 0, 1}}); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("bind %s for a connection: %v", at, err)
			}
		})
	}
}
