package mux

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"testing/iotest"
)

var testLimits = Limits{Word: 192, Payload: 1 << 20, Answer: 1 << 20}

func TestParse(t *testing.T) {
	for line, want := range map[string]bool{
		"CALL 1 01M7Y7 1795262400000 8 application/json": true,
		"CALL 18446744073709551615 o 0 1048576 -":        true,
		"CALL 2 /worker/claim?a=1 0 0 POST":              true,
		"CALL 2 o 1 0 text/plain; charset=utf-8":         true,
		"CALL 18446744073709551616 o 1 0 -":              false,
		"CALL 0 o 1 0 -":                                 false,
		"CALL 01 o 1 0 -":                                false,
		"CALL +1 o 1 0 -":                                false,
		"CALL 1  1 0 -":                                  false,
		"CALL 1 o 1 1048577 -":                           false,
		"CALL 1 o 1 0":                                   false,
		"CALL 1 o 1 0 ":                                  false,
		"CALL 1 o 9223372036854775808 0 -":               false,
		"CALL 1 o 1 0 -\r":                               false,
		"CALL 1 o 1 0 " + strings.Repeat("a", 193):       false,
		"CALL 1 " + strings.Repeat("o", 193) + " 1 0 -":  false,
		"call 1 o 1 0 -":                                 false,
		"CALL":                                           false,
		"CANCEL 7":                                       true,
		"CANCEL 0":                                       false,
		"CANCEL 7 ":                                      false,
		"CANCEL ":                                        false,
		"CANCEL":                                         false,
		"LOST 7":                                         true,
		"LOST seven":                                     false,
		"PING":                                           true,
		"PING ":                                          false,
		"PONG":                                           true,
		"PONG 1":                                         false,
		"DONE 7 200 2 text/plain":                        true,
		"DONE 7 599 1048576 -":                           true,
		"DONE 7 600 2 -":                                 false,
		"DONE 7 199 2 -":                                 false,
		"DONE 7 200 1048577 -":                           false,
		"DONE 7 200 -1 -":                                false,
		"DONE 0 200 1 -":                                 false,
		"DONE 7 200":                                     false,
		"":                                               false,
		"HTTP/1.1 400 Bad Request":                       false,
	} {
		f, err := parse([]byte(line), &testLimits)
		if (err == nil) != want {
			t.Errorf("%q: %v, want a valid frame: %v", line, err, want)
		}
		if err == nil && string(f.append(nil)) != line+"\n" {
			t.Errorf("%q was encoded as %q", line, f.append(nil))
		}
	}
	longest := frame{verb: verbCall, id: 1<<64 - 1, subject: bytes.Repeat([]byte("o"), 192), deadline: 1<<63 - 1, length: 1 << 62, media: bytes.Repeat([]byte("m"), 192)}
	if n := len(longest.append(nil)); n > testLimits.line() {
		t.Errorf("the longest line has %d bytes, but at most %d are read", n, testLimits.line())
	}
}

// FuzzFrames checks that each frame has exactly one encoding, and that it does not matter how its
// bytes are split on arrival.
func FuzzFrames(f *testing.F) {
	for _, s := range []string{
		"CALL 1 o 5 2 text/plain\nhiCANCEL 1\nCALL 2 o 5 0 -\n", "CANCEL 18446744073709551615\nPING\n", "CALL 1 o 5 3 -\nab", "\n",
		"DONE 1 200 2 text/plain\n42DONE 2 404 0 -\nPONG\nLOST 3\n", "DONE 1 200 1048577 -\n", "DONE 1 200 3 -\nab", strings.Repeat("D", 512),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		whole := newReader(nil, bytes.NewReader(stream), &testLimits, 0)
		one := newReader(nil, iotest.OneByteReader(bytes.NewReader(stream)), &testLimits, 0)
		var again []byte
		for {
			line, body, err := readOne(whole)
			line1, body1, err1 := readOne(one)
			if (err == nil) != (err1 == nil) || !bytes.Equal(line, line1) || !bytes.Equal(body, body1) {
				t.Fatalf("read in one piece: %q, %q, %v; byte by byte: %q, %q, %v", line, body, err, line1, body1, err1)
			}
			if err != nil {
				break
			}
			again = append(append(again, line...), body...)
		}
		if !bytes.HasPrefix(stream, again) {
			t.Fatalf("%q was decoded, but encoded again as %q", stream, again)
		}
	})
}

// readOne reads a frame and returns its line.
func readOne(r *reader) (line, body []byte, err error) {
	f, err := r.next()
	if err != nil {
		return nil, nil, err
	}
	line = f.append(nil)
	body, err = r.take(f.length)
	return line, body, err
}

// Writes do not block, all data arrives in order, and writing fails once the reader has
// disconnected.
func TestPipe(t *testing.T) {
	near, far := loopback(t)
	p := NewPipe(near)
	p.begin(stallTime)
	var want bytes.Buffer
	write := func() {
		block := bytes.Repeat([]byte{byte(want.Len() / 1000)}, 100_000)
		want.Write(block)
		if n, err := p.Write(block); n != len(block) || err != nil {
			t.Fatalf("wrote %d bytes, %v", n, err)
		}
	}
	for !p.buffered() { // until the system accepts no more
		write()
	}
	write()
	flushed := make(chan error, 1)
	go func() { flushed <- p.flush() }()
	got := make([]byte, want.Len())
	if err := readFull(far, got); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("the received bytes differ, %v", err)
	}
	if err := <-flushed; err != nil || p.buffered() {
		t.Errorf("flush: %v, buffered: %v", err, p.buffered())
	}
	far.Close()
	var err error
	for i := 0; err == nil; i++ {
		if i == 1000 {
			t.Fatal("no error after the reader disconnected")
		}
		if _, err = p.Write(make([]byte, 100_000)); err == nil && p.buffered() {
			err = p.flush()
		}
	}
}

// loopback returns both ends of a TCP connection.
func loopback(t testing.TB) (near, far net.Conn) {
	t.Helper()
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if near, err = new(net.Dialer).DialContext(t.Context(), "tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}
