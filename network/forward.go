package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// hostResolvers is the path of the file that lists the host's name servers.
const hostResolvers = "/etc/resolv.conf"

// forwarder forwards queries to other name servers.
type forwarder struct {
	fixed []string      // name servers to use instead of the host's
	file  string        // file that lists the host's name servers
	slots chan struct{} // one element for each query that is being forwarded

	mu      sync.Mutex
	found   []string // name servers found in file
	changed time.Time
	looked  time.Time
}

func newForwarder(upstream []string) *forwarder {
	f := &forwarder{file: hostResolvers, slots: make(chan struct{}, maxForwarding)}
	for _, s := range upstream {
		f.fixed = append(f.fixed, withPort(s))
	}
	return f
}

// withPort adds the default DNS port to an address without a port.
func withPort(server string) string {
	if _, err := netip.ParseAddr(server); err == nil {
		return net.JoinHostPort(server, "53")
	}
	return server
}

// serverTimeout is the time limit for one name server. It is so short that two servers can time out within
// questionTimeout. fileInterval is the interval at which hostResolvers is checked for changes.
const (
	serverTimeout = 2 * time.Second
	fileInterval  = 5 * time.Second
)

// forward forwards a query unchanged, using the transport over which it arrived. A client that receives a truncated
// answer repeats the query over TCP.
func (r *resolver) forward(ctx context.Context, overTCP bool, question, reply *dns.Msg) *dns.Msg {
	answer, err := r.forwarder.exchange(ctx, overTCP, question)
	if err != nil {
		r.log.Debug("no name server answered", "err", err)
		reply.Rcode = dns.RcodeServerFailure
		return reply
	}
	answer.Id = question.Id
	answer.Compress = true
	return answer
}

// exchange queries the servers one after another until one of them answers.
func (f *forwarder) exchange(ctx context.Context, overTCP bool, question *dns.Msg) (*dns.Msg, error) {
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	default:
		return nil, fmt.Errorf("too many pending DNS queries: limit %d", maxForwarding)
	}
	servers, err := f.servers(time.Now())
	if err != nil {
		return nil, err
	}
	client := &dns.Client{Net: "udp", Timeout: serverTimeout, UDPSize: dns.DefaultMsgSize}
	if overTCP {
		client.Net = "tcp"
	}
	ours := question.Copy()
	ours.Id = dns.Id() // unpredictable, so that the querying machine cannot help anyone to forge an answer
	err = fmt.Errorf("no name server configured")
	for _, server := range servers {
		var answer *dns.Msg
		answer, _, err = client.ExchangeContext(ctx, ours, server)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
		case !answers(answer, question):
			err = fmt.Errorf("%s answered a different question", server)
		case answer.Rcode == dns.RcodeServerFailure || answer.Rcode == dns.RcodeRefused:
			err = fmt.Errorf("%s: %s", server, dns.RcodeToString[answer.Rcode])
		default:
			return answer, nil
		}
	}
	return nil, err
}

// answers reports whether answer belongs to question. The DNS client has already compared their ids.
func answers(answer, question *dns.Msg) bool {
	if !answer.Response || len(answer.Question) != 1 {
		return false
	}
	a, q := answer.Question[0], question.Question[0]
	return a.Qtype == q.Qtype && a.Qclass == q.Qclass && strings.EqualFold(a.Name, q.Name)
}

// servers returns the configured name servers or, if none are configured, the host's. The host's file is reread when it
// changes, for example because the host has joined another network.
func (f *forwarder) servers(now time.Time) ([]string, error) {
	if len(f.fixed) > 0 {
		return f.fixed, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.looked) < fileInterval {
		return f.found, nil
	}
	info, err := os.Stat(f.file)
	if err != nil {
		return nil, err
	}
	if !info.ModTime().Equal(f.changed) {
		conf, err := dns.ClientConfigFromFile(f.file)
		if err != nil {
			return nil, err
		}
		f.found = nil
		for _, server := range conf.Servers {
			f.found = append(f.found, net.JoinHostPort(server, conf.Port))
		}
		f.changed = info.ModTime()
	}
	f.looked = now
	return f.found, nil
}
