package servertest

import (
	"errors"
	"net"
	"slices"
	"syscall"
	"testing"
)

// Workers that are there at one time have ranges of their own.
func TestPorts(t *testing.T) {
	first, second := ports(t), ports(t)
	s := New(t, "w1", "serve", "worker")
	i := slices.Index(s.Args, "--ports")
	if i < 0 || first == second || s.Args[i+1] == first || s.Args[i+1] == second {
		t.Errorf("%s, %s and a worker with %v", first, second, s.Args)
	}
}

// While a server is away no connection is given its port, and who connects there is refused.
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
