package nats

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFrames(t *testing.T) {
	for _, f := range []frame{
		{kind: kindOpen, from: newAddress(), window: 1 << 20},
		{kind: kindAccept, window: 1},
		{kind: kindData, number: 1<<32 - 1, data: []byte("hello")},
		{kind: kindData, data: []byte{}},
		{kind: kindCredit, number: 7, window: 1<<32 - 1},
		{kind: kindEnd, number: 8},
		{kind: kindReset, data: []byte("why")},
	} {
		got, err := parseFrame(f.append(nil))
		if d := cmp.Diff(f, got, cmp.AllowUnexported(frame{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); err != nil || d != "" {
			t.Errorf("%+v: %v (-want +got):\n%s", f, err, d)
		}
	}
}

// FuzzFrame checks that a parsed frame is encoded to the same bytes.
func FuzzFrame(f *testing.F) {
	for _, seed := range []frame{
		{kind: kindOpen, from: newAddress(), window: 1 << 20},
		{kind: kindAccept, window: 1},
		{kind: kindData, number: 3, data: []byte("hello")},
		{kind: kindCredit, window: 9},
		{kind: kindEnd},
		{kind: kindReset, data: []byte("why")},
	} {
		f.Add(seed.append(nil))
	}
	f.Add([]byte("GET / HTTP/1.1"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parseFrame(b)
		if err != nil {
			return
		}
		if again := got.append(nil); !bytes.Equal(again, b) && got.kind != kindReset {
			t.Errorf("%x was decoded as %+v, which is encoded as %x", b, got, again)
		}
	})
}

func TestAddress(t *testing.T) {
	a := newAddress()
	if p := hostPort(a, PortAPI); !IsAddress(p) {
		t.Errorf("%s is not recognized as a NATS address", p)
	}
	if b, port, ok := parseHostPort(hostPort(a, 65535)); !ok || b != a || port != 65535 {
		t.Errorf("got %s, %d, %v", b, port, ok)
	}
	for _, other := range []string{"", "127.0.0.1:80", "[::1]:80", "[fd6e:6174:7200::1]:1", "example.com:1", a.String(), "[" + a.String() + "]", "[" + a.String() + "]:70000"} {
		if IsAddress(other) {
			t.Errorf("%q is recognized as a NATS address", other)
		}
	}
}

func TestConfig(t *testing.T) {
	for name, c := range map[string]Config{
		"no server":         {},
		"not a server":      {URLs: []string{"demo.nats.io"}},
		"http":              {URLs: []string{"http://localhost:4222"}},
		"wildcard":          {URLs: []string{"nats://localhost"}, Cluster: "a.*"},
		"all":               {URLs: []string{"nats://localhost"}, Cluster: ">"},
		"space":             {URLs: []string{"nats://localhost"}, Cluster: "a b"},
		"empty token":       {URLs: []string{"nats://localhost"}, Cluster: "a..b"},
		"dot at the end":    {URLs: []string{"nats://localhost"}, Cluster: "a."},
		"line break":        {URLs: []string{"nats://localhost"}, Cluster: "a\r\nPUB"},
		"creds and an nkey": {URLs: []string{"nats://localhost"}, Creds: "a", NKey: "b"},
	} {
		c = c.withDefaults()
		if c.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	good := Config{URLs: []string{"tls://user:secret@a:1", "nats://b"}, Cluster: "my.own"}.withDefaults()
	if err := good.Validate(); err != nil {
		t.Errorf("a valid configuration: %v", err)
	}
	if got := good.safeServers(); got != "a:1,b" {
		t.Errorf("logged as %q", got)
	}
}
