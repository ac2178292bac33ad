package hostile

import (
	"bytes"
	"compress/lzw"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
)

// gossiper sends arbitrary messages to the membership of a server. It has the cluster's
// key.
type gossiper struct {
	t     *testing.T
	addr  string
	label string
	key   cipher.AEAD
}

func newGossiper(t *testing.T, s *servertest.Server, key []byte) *gossiper {
	t.Helper()
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	return &gossiper{t, s.Addr, "bourse/" + s.Of, gcm}
}

func (g *gossiper) head() []byte { return append([]byte{244, byte(len(g.label))}, g.label...) }

func (g *gossiper) seal(dst []byte, version byte, message string, bound []byte) []byte {
	nonce := make([]byte, g.key.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return g.key.Seal(append(append(dst, version), nonce...), nonce, []byte(message), bound)
}

// packet sends a message in a UDP packet.
func (g *gossiper) packet(version byte, message string) {
	g.t.Helper()
	c, err := net.Dial("udp", g.addr)
	if err != nil {
		g.t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(g.seal(g.head(), version, message, []byte(g.label))); err != nil {
		g.t.Fatal(err)
	}
}

// stream sends a message on a new TCP connection, except for its last left bytes, and returns the connection.
func (g *gossiper) stream(message string, left int) net.Conn {
	g.t.Helper()
	c, err := new(net.Dialer).DialContext(g.t.Context(), "tcp", g.addr)
	if err != nil {
		g.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	frame := binary.BigEndian.AppendUint32([]byte{10}, uint32(1+12+16+len(message)))
	sealed := g.seal(append(g.head(), frame...), 1, message, append(bytes.Clone(frame), g.label...))
	_, _ = c.Write(sealed[:len(sealed)-left]) // the server may close the connection early
	return c
}

// text encodes a text as messages of the membership contain it.
func text(s string) string {
	return "\xdb" + string(binary.BigEndian.AppendUint32(nil, uint32(len(s)))) + s
}

// compressed compresses a message in the format that the membership formerly used.
func compressed(message string) string {
	var b bytes.Buffer
	w := lzw.NewWriter(&b, lzw.LSB, 8)
	_, _ = io.Copy(w, strings.NewReader(message)) // writes to memory cannot fail
	_ = w.Close()
	return "\x09\x82" + text("Algo") + "\x00" + text("Buf") + text(b.String())
}

// pushPull returns a message that announces members and data, but contains none.
func pushPull(nodes, behind uint32) string {
	return "\x06\x83" + text("Nodes") + "\xce" + string(binary.BigEndian.AppendUint32(nil, nodes)) +
		text("UserStateLen") + "\xce" + string(binary.BigEndian.AppendUint32(nil, behind)) + text("Join") + "\xc2"
}

// mostForGossip limits the memory that a server may use for messages to its membership, in
// MiB.
const mostForGossip = 150

// TestGossipDecompressionBombs sends small messages that decompress to gigabytes, and messages that would make
// memberlist panic. The sender has the membership's key. The memory of a broker and a worker must stay small, and both
// must continue.
func TestGossipDecompressionBombs(t *testing.T) {
	s := newSecured(t)
	broker := s.broker()
	worker := s.worker("--join", broker.Addr)
	s.execOnW1(s.client(broker))
	bomb := compressed("\x08" + strings.Repeat("x", 39<<20))
	nested := compressed("\x07\xff" + strings.Repeat("\x00\x01", 255) + strings.Repeat("\x08", 255) + strings.Repeat("x", 39<<20))
	compound := "\x08"
	for len(compound) < 60_000 {
		compound = "\x07\x01" + string(binary.BigEndian.AppendUint16(nil, uint16(len(compound)))) + compound
	}
	for _, server := range []*servertest.Server{broker, worker} {
		g, before := newGossiper(t, server, s.key), rss(t, server)
		var peak int
		look := func() { peak = max(peak, rss(t, server)) }
		for range 200 {
			for _, message := range []string{
				bomb, nested, compound, compressed(bomb), "",
				"\x04\x81\xdb\xff\xff\xff\xf0", "\x04\x81" + text("Node") + "\xdb\xff\xff\xff\xf0", "\x04\x81" + text("Meta") + "\xc6\xff\xff\xff\xf0",
			} {
				if len(message) < 60_000 {
					g.packet(1, message)
				}
			}
			g.packet(0, strings.Repeat("\xff", 16)) // more padding than the message has bytes
			look()
		}
		var wg sync.WaitGroup
		for range 100 {
			for _, message := range []string{
				bomb, "", pushPull(1<<20-1, 0), pushPull(1<<31, 0), pushPull(0, 20<<20), pushPull(1, 0) + "\x81\xdb\xff\xff\xff\xf0",
				"\x08\x81" + text("UserMsgLen") + "\xce\x01\x00\x00\x00", pushPull(0, 0) + strings.Repeat("x", 1<<20),
			} {
				wg.Go(func() { _ = g.stream(message, 0).Close() })
			}
			look()
		}
		wg.Wait()
		var held []net.Conn
		for range 40 { // 8 MiB each, of which the last byte is not sent
			held = append(held, g.stream(strings.Repeat("x", 8<<20-64), 1))
			look()
		}
		for _, c := range held { // wait until the server has closed the connections
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
			look()
		}
		t.Logf("%s: %d MiB before, %d at most", server.Name, before, peak)
		if peak > before+mostForGossip {
			t.Errorf("the memory of %s grew by %d MiB because of membership messages, want at most %d MiB", server.Name, peak-before, mostForGossip)
		}
	}
	s.execOnW1(s.client(broker))
	s.issue("b2", bourse.RoleBroker)
	second := servertest.Start(t, "b2", "serve", "broker", "--name", "b2", "--listen", "127.0.0.1:0",
		"--credentials", s.dir, "--join", broker.Addr)
	s.execOnW1(s.client(second)) // it can join the cluster and learns about w1
}
