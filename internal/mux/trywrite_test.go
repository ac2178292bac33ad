package mux

import (
	"net"
	"testing"
)

// TestTryWrite checks that a socket accepts data until it is full, accepts more after the other
// end has read, and returns an error once it is closed.
func TestTryWrite(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	try, piece, total := tryWrite(a), make([]byte, 64<<10), 0
	for {
		n, err := try(piece)
		if err != nil || n < 0 || n > len(piece) {
			t.Fatalf("wrote %d bytes, %v", n, err)
		}
		if n == 0 {
			break
		}
		if total += n; total > 1<<30 {
			t.Fatal("a socket that nobody reads accepted all data")
		}
	}
	for got := 0; got < total; {
		n, err := b.Read(piece)
		if err != nil {
			t.Fatal(err)
		}
		got += n
	}
	if n, err := try([]byte("x")); n != 1 || err != nil {
		t.Errorf("after the other end has read: %d bytes, %v", n, err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := try([]byte("x")); err == nil {
		t.Errorf("wrote %d bytes to a closed connection", n)
	}
}

// TestTryWritePipe checks that nothing is written to a connection that is not a socket.
func TestTryWritePipe(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if n, err := tryWrite(a)([]byte("x")); n != 0 || err != nil {
		t.Errorf("wrote %d bytes, %v", n, err)
	}
}
