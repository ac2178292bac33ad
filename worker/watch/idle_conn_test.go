package watch

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// Bytes in either direction count as use, and an open connection without any traffic
// does not. touch is not called more often than necessary.
func TestConnTouches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer func() { _ = near.Close() }()
		touched := 0
		c := Conn(near, func() { touched++ })
		defer func() { _ = c.Close() }()
		pass := func(from, to net.Conn) {
			t.Helper()
			go func() { _, _ = from.Write([]byte("x")) }()
			if _, err := to.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		for _, step := range []struct {
			what string
			do   func()
			want int
		}{
			{"opened", func() {}, 1},
			{"an hour without a byte", func() { time.Sleep(time.Hour) }, 1},
			{"a byte comes", func() { pass(far, c) }, 2},
			{"more at the same time", func() { pass(far, c); pass(c, far) }, 2},
			{"a byte goes, later", func() { time.Sleep(time.Second); pass(c, far) }, 3},
			{"it ends", func() { _ = far.Close(); time.Sleep(time.Second); _, _ = c.Read(make([]byte, 1)) }, 3},
		} {
			if step.do(); touched != step.want {
				t.Errorf("%s: touched %d times, want %d", step.what, touched, step.want)
			}
		}
		if _, ok := c.(closeWriter); ok {
			t.Error("it implements CloseWrite, but its connection does not")
		}
		if _, ok := Conn(&net.TCPConn{}, func() {}).(closeWriter); !ok {
			t.Error("it does not implement CloseWrite, but its connection does")
		}
	})
}
