package network

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// upstream starts a name server on loopback and returns its address.
func upstream(t *testing.T, handle dns.HandlerFunc) string {
	t.Helper()
	started := make(chan struct{})
	s := &dns.Server{Addr: "127.0.0.1:0", Net: "udp", Handler: handle, NotifyStartedFunc: func() { close(started) }}
	done := make(chan error, 1)
	go func() { done <- s.ListenAndServe() }()
	select {
	case <-started:
	case err := <-done:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Shutdown() // it may have ended already
		<-done
	})
	return s.PacketConn.LocalAddr().String()
}

func TestForward(t *testing.T) {
	seen := make(chan string, 10)
	good := upstream(t, func(w dns.ResponseWriter, q *dns.Msg) {
		seen <- q.Question[0].Name
		m := new(dns.Msg).SetReply(q)
		rr, err := dns.NewRR(q.Question[0].Name + " 60 IN TXT hello")
		if err != nil {
			t.Error(err)
		}
		m.Answer = []dns.RR{rr}
		_ = w.WriteMsg(m)
	})
	failing := upstream(t, func(w dns.ResponseWriter, q *dns.Msg) {
		_ = w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeServerFailure))
	})
	lying := upstream(t, func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.Question[0].Name = "elsewhere.example."
		_ = w.WriteMsg(m)
	})
	names, _ := market()
	r := newTestResolver(names)
	r.forwarder = newForwarder([]string{failing, lying, "127.0.0.1:1", good})
	q := new(dns.Msg).SetQuestion("example.com.", dns.TypeTXT)
	got := r.handle(t.Context(), asking.address(), false, q)
	if summary(got) != "NOERROR hello" || got.Id != q.Id || got.Authoritative {
		t.Errorf("%v", got)
	}
	for _, name := range []string{"nobody.internal.", "x.a.a.d.f.ip6.arpa."} {
		_ = r.handle(t.Context(), asking.address(), false, new(dns.Msg).SetQuestion(name, dns.TypeTXT))
	}
	if first := <-seen; first != "example.com." || len(seen) > 0 {
		t.Errorf("forwarded queries: %s and %d more, want only example.com.", first, len(seen))
	}
	// Fill the queue of unanswered queries.
	for range maxForwarding {
		r.forwarder.slots <- struct{}{}
	}
	if got := summary(r.handle(t.Context(), asking.address(), false, q)); got != "SERVFAIL" {
		t.Errorf("with too many pending queries: got %s, want SERVFAIL", got)
	}
}

func TestForwardEndsWithItsContext(t *testing.T) {
	silent := upstream(t, func(dns.ResponseWriter, *dns.Msg) {})
	f := newForwarder([]string{silent, silent})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := f.exchange(ctx, false, new(dns.Msg).SetQuestion("example.com.", dns.TypeA)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
