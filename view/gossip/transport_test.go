package gossip

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
)

// pipe is a transport whose packets and streams the test itself sends and receives.
type pipe struct {
	packets chan *memberlist.Packet
	streams chan net.Conn
	dials   chan net.Conn
	sent    chan []byte
}

func newPipe() *pipe {
	return &pipe{make(chan *memberlist.Packet), make(chan net.Conn), make(chan net.Conn, 1), make(chan []byte, 1)}
}

func (w *pipe) FinalAdvertiseAddr(string, int) (net.IP, int, error) { return nil, 0, nil }
func (w *pipe) PacketCh() <-chan *memberlist.Packet                 { return w.packets }
func (w *pipe) StreamCh() <-chan net.Conn                           { return w.streams }
func (w *pipe) Shutdown() error                                     { return nil }

func (w *pipe) WriteTo(b []byte, _ string) (time.Time, error) {
	w.sent <- b
	return time.Time{}, nil
}

func (w *pipe) DialTimeout(string, time.Duration) (net.Conn, error) {
	here, there := net.Pipe()
	w.dials <- there
	return here, nil
}

// end is a Transport on top of a pipe. It records the reasons for refused data.
type end struct {
	*Transport
	below *pipe
	mu    sync.Mutex
	why   []error
}

func start(t *testing.T, label string, keys ...[]byte) *end {
	t.Helper()
	k, err := NewKeys(keys)
	if err != nil {
		t.Fatal(err)
	}
	e := &end{below: newPipe()}
	e.Transport = New(e.below, label, k, func(_ net.Addr, why error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.why = append(e.why, why)
	})
	t.Cleanup(func() { _ = e.Transport.Shutdown() })
	return e
}

func (e *end) refusals() []error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.why
}

var (
	keyA = bytes.Repeat([]byte{1}, 16)
	keyB = bytes.Repeat([]byte{2}, 32)
	ack  = []byte("\x02\x81\xa5SeqNo\x07")
)

// TestPackets checks that a packet arrives unchanged, whichever of the keys encrypted it. A
// packet must not arrive if it has another label or key, is too long, or was modified.
func TestPackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := start(t, "ours", keyA, keyB)
		send := func(from *end, message []byte, change func([]byte) []byte) {
			t.Helper()
			if _, err := from.WriteTo(message, "x"); err != nil {
				t.Fatal(err)
			}
			to.below.packets <- &memberlist.Packet{Buf: change(<-from.below.sent)}
		}
		same := func(b []byte) []byte { return b }
		for _, key := range [][]byte{keyA, keyB} {
			send(start(t, "ours", key), ack, same)
			if got := <-to.PacketCh(); !bytes.Equal(got.Buf, ack) {
				t.Errorf("received %x", got.Buf)
			}
		}
		ours := start(t, "ours", keyA)
		send(start(t, "theirs", keyA), ack, same)
		send(start(t, "ours"), ack, same)
		send(ours, append([]byte{typeUser}, make([]byte, maxPacket)...), same)
		send(ours, ack, func(b []byte) []byte { b[len(b)-1]++; return b })
		send(ours, ack, func(b []byte) []byte { return b[:9] })
		send(ours, []byte{}, same)
		synctest.Wait()
		want := []error{errLabel, errSealed, errSize, errSealed, errSealed, errForm}
		got := to.refusals()
		if len(got) != len(want) {
			t.Fatalf("refused: %v, want %v", got, want)
		}
		for i := range want {
			if !errors.Is(got[i], want[i]) {
				t.Errorf("refused: %v, want %v", got[i], want[i])
			}
		}
	})
}

// TestStreams checks that a long message and its reply arrive unchanged.
func TestStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := start(t, "ours", keyA), start(t, "ours", keyA)
		behind := make([]byte, 3<<20)
		_, _ = rand.Read(behind)
		message := state(0, uint32(len(behind)), string(behind))
		dialed, err := from.DialTimeout("x", time.Second)
		if err != nil {
			t.Fatal(err)
		}
		to.below.streams <- <-from.below.dials
		accepted := <-to.StreamCh()
		go func() { _, _ = dialed.Write(message) }() // the reader reports errors
		if got, err := io.ReadAll(accepted); err != nil || !bytes.Equal(got, message) {
			t.Errorf("%d bytes arrived of %d: %v", len(got), len(message), err)
		}
		go func() { _, _ = accepted.Write(ack) }()
		if got, err := io.ReadAll(dialed); err != nil || !bytes.Equal(got, ack) {
			t.Errorf("the reply is %x: %v", got, err)
		}
		if err := errors.Join(dialed.Close(), accepted.Close(), accepted.Close()); err != nil {
			t.Error(err)
		}
		if !to.memory.TryAcquire(maxLongMessages) {
			t.Error("memory was not released")
		}
	})
}

// TestLongMessagesShareTheMemoryLimit checks that a message uses only as much memory as has been
// received, whatever length it declares, that all long messages share the memory limit, and that
// short messages are accepted even if the limit is reached.
func TestLongMessagesShareTheMemoryLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := start(t, "ours", keyA)
		accept := func() (here, accepted net.Conn) {
			here, there := net.Pipe()
			to.below.streams <- there
			accepted = <-to.StreamCh()
			t.Cleanup(func() { _, _ = accepted.Close(), here.Close() })
			return here, accepted
		}
		errs := make(chan error, 3)
		for range 3 { // messages of 8 MiB that are never completed
			here, accepted := accept()
			go func() {
				_, err := accepted.Read(make([]byte, 1))
				errs <- err
				_ = accepted.Close()
			}()
			go func() {
				_, _ = here.Write(append(to.appendLabel(nil), typeEncrypted, 0, 0x80, 0, 0))
				_, _ = here.Write(make([]byte, maxMessage-1)) // fails if there is no memory left
			}()
			synctest.Wait()
		}
		if err := <-errs; !errors.Is(err, errNoMemory) {
			t.Errorf("more than the memory limit: %v, want %v", err, errNoMemory)
		}
		_, accepted := accept()
		_ = accepted.Close()
		here, accepted := accept()
		short := to.keys.seal(append(to.appendLabel(nil), typeEncrypted, 0, 0, 0, byte(overhead+len(ack))), ack,
			append([]byte{typeEncrypted, 0, 0, 0, byte(overhead + len(ack))}, "ours"...))
		go func() { _, _ = here.Write(short) }()
		if got, err := io.ReadAll(accepted); err != nil || !bytes.Equal(got, ack) {
			t.Errorf("a short message in addition: %x, %v", got, err)
		}
	})
}

// TestStreamsAreCounted checks that a caller is disconnected at once if there are too many
// streams, and that new callers are accepted once a stream has ended.
func TestStreamsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := start(t, "ours", keyA)
		var accepted []net.Conn
		for range maxStreams {
			_, there := net.Pipe()
			to.below.streams <- there
			accepted = append(accepted, <-to.StreamCh())
		}
		here, there := net.Pipe()
		to.below.streams <- there
		if _, err := here.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a stream beyond the limit: %v, want %v", err, io.EOF)
		}
		_ = accepted[0].Close()
		_, there = net.Pipe()
		to.below.streams <- there
		<-to.StreamCh()
	})
}

// TestStreamsOfStrangers checks that a message is refused if it is empty, too long, not
// encrypted, or encrypted with another key.
func TestStreamsOfStrangers(t *testing.T) {
	bound := func(size byte) []byte { return append([]byte{typeEncrypted, 0, 0, 0, size}, "ours"...) }
	k, err := NewKeys([][]byte{keyA})
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewKeys([][]byte{keyB})
	if err != nil {
		t.Fatal(err)
	}
	label := "\xf4\x04ours"
	frameOf := func(k *Keys, m []byte) []byte {
		n := byte(overhead + len(m))
		return k.seal(append([]byte(label), typeEncrypted, 0, 0, 0, n), m, bound(n))
	}
	for name, c := range map[string]struct {
		sent []byte
		want error
	}{
		"another key":             {frameOf(other, ack), errSealed},
		"no message":              {frameOf(k, nil), errForm},
		"too long":                {[]byte(label + "\x0a\x7f\xff\xff\xff"), errSize},
		"plain":                   {[]byte(label + string(state(1<<20, 0, ""))), errSealed},
		"another label":           {[]byte("\xf4\x06theirs"), errLabel},
		"cut":                     {frameOf(k, ack)[:30], io.ErrUnexpectedEOF},
		"length 0":                {[]byte(label + "\x0a\x00\x00\x00\x00"), errSealed},
		"nothing":                 {nil, io.EOF},
		"a length beyond the end": {append([]byte(label), "\x0a\x00\x00\xff\xffabc"...), io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			to := start(t, "ours", keyA)
			here, there := net.Pipe()
			to.below.streams <- there
			accepted := <-to.StreamCh()
			defer accepted.Close()
			go func() {
				_, _ = here.Write(c.sent)
				_ = here.Close()
			}()
			if got, err := io.ReadAll(accepted); c.want == io.EOF && (err != nil || len(got) > 0) || c.want != io.EOF && !errors.Is(err, c.want) { //nolint:errorlint // the table's own
				t.Errorf("%x, %v, want %v", got, err, c.want)
			}
		})
	}
}
