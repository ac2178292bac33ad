package network

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func TestByName(t *testing.T) {
	w := newWorker(t, nil)
	w.run(t)
	a, b := w.attach(t, machine(1, "front", "one/")), w.attach(t, machine(2, "back", "one/"))
	c := w.attach(t, machine(3, "evil", "two/"))
	w.names.hold(a.spec, b.spec, c.spec)
	b.listen(t, "[::]:8080")

	got := awaitHost(t, a, "back.internal")
	if len(got) != 1 || got[0] != b.Address.String() {
		t.Fatalf("back.internal: got %v, want %s", got, b.Address)
	}
	if line, err := a.greeting(net.JoinHostPort(got[0], "8080")); err != nil || !strings.HasPrefix(line, string(b.spec.Machine)) {
		t.Errorf("greeting of back.internal: got %q, %v", line, err)
	}
	txt, err := a.resolver().LookupTXT(t.Context(), "vms.back.internal")
	if want := string(b.spec.Machine) + " mad"; err != nil || len(txt) != 1 || txt[0] != want {
		t.Errorf("vms.back.internal: got %q, %v; want %q", txt, err, want)
	}
	// An answer that is too long for UDP is received over TCP.
	var many []Spec
	for i := range 100 {
		many = append(many, machine(100+i, "many", "one/"))
	}
	w.names.hold(many...)
	if got, err := a.resolver().LookupHost(t.Context(), "many.internal"); len(got) != 100 || err != nil {
		t.Errorf("many.internal: got %d addresses, %v; want 100", len(got), err)
	}
	// For a machine in another network, the name does not exist.
	_, err = c.resolver().LookupHost(t.Context(), "back.internal")
	if e, ok := errors.AsType[*net.DNSError](err); !ok || !e.IsNotFound {
		t.Errorf("back.internal, queried from another network: %v, want no such host", err)
	}
}

// awaitHost looks up name until the resolver answers.
func awaitHost(t *testing.T, i *inhabitant, name string) (got []string) {
	t.Helper()
	var err error
	if !eventually(func() bool { got, err = i.resolver().LookupHost(t.Context(), name); return err == nil }) {
		t.Fatalf("%s: %v", name, err)
	}
	return got
}

// If a machine keeps opening connections to the resolver, it reaches its own limit, but other
// machines are still served.
func TestResolverConnectionsAreBounded(t *testing.T) {
	w := newWorker(t, nil)
	w.run(t)
	a, b := w.attach(t, machine(1, "shop", "one/")), w.attach(t, machine(2, "shop", "one/"))
	w.names.hold(a.spec)
	awaitHost(t, a, "shop.internal")
	to := at(ResolverAddress, dnsPort)
	alive := 0
	for range 3 * maxConnections {
		c, err := a.dial(to)
		if err != nil {
			continue
		}
		defer func() { _ = c.Close() }()
		// The resolver closes excess connections immediately.
		if err := c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			alive++
		}
	}
	if alive != maxConnections {
		t.Errorf("got %d open connections, want %d", alive, maxConnections)
	}
	q := new(dns.Msg).SetQuestion("shop.internal.", dns.TypeAAAA)
	c, err := b.dial(to)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	conn := &dns.Conn{Conn: c}
	if err := conn.WriteMsg(q); err != nil {
		t.Fatal(err)
	}
	if got, err := conn.ReadMsg(); err != nil || len(got.Answer) != 1 {
		t.Errorf("query from another machine: %v, %v", got, err)
	}
}
