package direct

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
)

// TestNowait shows that no writer waits, that everything arrives in order, and
// that a reader which has left is an error.
func TestNowait(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	theirs, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	w := newNowait(c)
	w.waiting = false
	var want bytes.Buffer
	write := func() {
		block := bytes.Repeat([]byte{byte(want.Len() / 1000)}, 100_000)
		want.Write(block)
		if n, err := w.Write(block); n != len(block) || err != nil {
			t.Fatalf("wrote %d bytes, %v", n, err)
		}
	}
	for !w.kept() { // more than the system takes
		write()
	}
	write()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.Flush(); err != nil {
			t.Errorf("flush: %v", err)
		}
	})
	got := make([]byte, want.Len())
	if _, err := io.ReadFull(theirs, got); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("other bytes came, %v", err)
	}
	wg.Wait()
	if w.kept() {
		t.Error("something was kept")
	}
	theirs.Close()
	for i := 0; err == nil; i++ {
		if i == 1000 {
			t.Fatal("a reader that has gone is no error")
		}
		_, err = w.Write(make([]byte, 100_000))
		if err == nil && w.kept() {
			err = w.Flush()
		}
	}
}
