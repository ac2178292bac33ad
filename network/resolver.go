package network

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// Limits of the resolver.
const (
	timeToLive      = 5    // seconds, for every answer about private networks
	ednsSize        = 1232 // maximum number of bytes of a UDP answer, so that no link fragments it
	maxAnswering    = 256  // maximum number of queries being answered at the same time
	maxForwarding   = 128  // maximum number of queries being forwarded at the same time
	questionTimeout = 5 * time.Second
)

// resolver answers DNS queries from this worker's machines, and from laptops connected to this worker. A query's source
// address identifies the client and its private network. The firewall ensures that machines cannot use other machines'
// addresses.
type resolver struct {
	directory directory
	forwarder *forwarder
	machineAt func(netip.Addr) (Spec, bool)
	rates     rates
	slots     chan struct{} // one element for each query being answered
	log       *slog.Logger
}

func newResolver(cfg Config, names Names, machineAt func(netip.Addr) (Spec, bool)) *resolver {
	r := &resolver{
		forwarder: newForwarder(cfg.Upstream), machineAt: machineAt, slots: make(chan struct{}, maxAnswering), log: cfg.Log,
	}
	r.directory.names, r.directory.region = names, cfg.Region
	return r
}

// serveOne answers one query.
func (r *resolver) serveOne(ctx context.Context, w dns.ResponseWriter, question *dns.Msg) {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	from, overTCP := remote(w.RemoteAddr())
	reply := r.handle(ctx, from, overTCP, question)
	if reply == nil {
		_ = w.Close() // the sender is not a client of this resolver, or has sent something other than a query
		return
	}
	if err := w.WriteMsg(reply); err != nil && overTCP {
		_ = w.Close() // the connection may contain an incomplete message
	}
}

func remote(a net.Addr) (from netip.Addr, overTCP bool) {
	switch a := a.(type) {
	case *net.UDPAddr:
		return a.AddrPort().Addr().Unmap(), false
	case *net.TCPAddr:
		return a.AddrPort().Addr().Unmap(), true
	}
	return netip.Addr{}, false
}

// handle returns the reply to a query, even if the query is invalid. It returns nil if the message must not be
// answered.
func (r *resolver) handle(ctx context.Context, from netip.Addr, overTCP bool, question *dns.Msg) *dns.Msg {
	client, ok := r.machineAt(from)
	if !ok || question.Response {
		return nil
	}
	reply := new(dns.Msg).SetReply(question)
	reply.RecursionAvailable, reply.Compress = true, true
	size := dns.MinMsgSize
	if opt := question.IsEdns0(); opt != nil {
		size = max(size, min(int(opt.UDPSize()), ednsSize))
		reply.SetEdns0(ednsSize, false)
		if opt.Version() != 0 {
			reply.Rcode = dns.RcodeBadVers
			return reply
		}
	}
	if overTCP {
		size = dns.MaxMsgSize
	}
	reply = r.reply(ctx, client, overTCP, question, reply)
	reply.Truncate(size)
	return reply
}

// reply returns the answer to a query from client: either the given reply, which it fills in, or another name server's
// reply.
func (r *resolver) reply(ctx context.Context, client Spec, overTCP bool, question, reply *dns.Msg) *dns.Msg {
	switch {
	case question.Opcode != dns.OpcodeQuery:
		reply.Rcode = dns.RcodeNotImplemented
		return reply
	case len(question.Question) != 1:
		reply.Rcode = dns.RcodeFormatError
		return reply
	case !r.rates.allow(client.Machine, time.Now()):
		reply.Rcode = dns.RcodeRefused
		return reply
	}
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	default:
		reply.Rcode = dns.RcodeServerFailure
		return reply
	}
	q := question.Question[0]
	labels, ours := inZone(q.Name)
	switch {
	case ours && q.Qclass == dns.ClassINET:
		r.internal(ctx, client, labels, q, reply)
	case ours || q.Qclass != dns.ClassINET || q.Qtype == dns.TypeAXFR || q.Qtype == dns.TypeIXFR:
		reply.Rcode = dns.RcodeRefused
	case isPrivateReverse(q.Name):
		reply.Rcode = dns.RcodeNameError
	default:
		return r.forward(ctx, overTCP, question, reply)
	}
	return reply
}

// internal answers a query for a name in the zone.
func (r *resolver) internal(ctx context.Context, client Spec, labels []string, q dns.Question, reply *dns.Msg) {
	reply.Authoritative = true
	a, err := r.directory.answer(ctx, client, parseName(labels))
	switch {
	case err != nil:
		r.log.Debug("answer private name failed", "machine", client.Machine, "err", err)
		reply.Rcode = dns.RcodeServerFailure
		return
	case !a.exists:
		reply.Rcode = dns.RcodeNameError
	}
	head := dns.RR_Header{Name: q.Name, Class: dns.ClassINET, Ttl: timeToLive}
	if q.Qtype == dns.TypeAAAA || q.Qtype == dns.TypeANY {
		head.Rrtype = dns.TypeAAAA
		for _, address := range a.addresses {
			reply.Answer = append(reply.Answer, &dns.AAAA{Hdr: head, AAAA: address.AsSlice()})
		}
	}
	if (q.Qtype == dns.TypeTXT || q.Qtype == dns.TypeANY) && len(a.text) > 0 {
		head.Rrtype = dns.TypeTXT
		reply.Answer = append(reply.Answer, &dns.TXT{Hdr: head, Txt: chunks(strings.Join(a.text, a.separator))})
	}
	if len(reply.Answer) == 0 {
		reply.Ns = []dns.RR{authority()}
	}
}

// authority returns the SOA record for negative answers. The record limits how long clients cache these answers (RFC
// 2308).
func authority() dns.RR {
	return &dns.SOA{
		Hdr: dns.RR_Header{Name: zone + ".", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: timeToLive},
		Ns:  "ns." + zone + ".", Mbox: "hostmaster." + zone + ".",
		Serial: 1, Refresh: timeToLive, Retry: timeToLive, Expire: timeToLive, Minttl: timeToLive,
	}
}

// chunks truncates a text to the maximum size of a TXT record, and splits it into strings of at most 255 bytes each.
func chunks(text string) []string {
	const most = 60_000
	text = text[:min(len(text), most)]
	var out []string
	for len(text) > 255 {
		out, text = append(out, text[:255]), text[255:]
	}
	return append(out, text)
}

// inZone returns the labels before the zone, with escape sequences decoded. It returns false if the
// name is not in the zone.
func inZone(question string) ([]string, bool) {
	labels := dns.SplitDomainName(question)
	if len(labels) == 0 || !strings.EqualFold(labels[len(labels)-1], zone) {
		return nil, false
	}
	labels = labels[:len(labels)-1]
	for i, l := range labels {
		labels[i] = unescape(l)
	}
	return labels, true
}

// unescape replaces escape sequences such as "\." and "\032" (RFC 4343, section 2.1).
func unescape(label string) string {
	if !strings.Contains(label, `\`) {
		return label
	}
	var b strings.Builder
	for i := 0; i < len(label); i++ {
		c := label[i]
		switch {
		case c != '\\' || i+1 == len(label):
		case i+3 < len(label) && isDigit(label[i+1]) && isDigit(label[i+2]) && isDigit(label[i+3]):
			c = (label[i+1]-'0')*100 + (label[i+2]-'0')*10 + label[i+3] - '0'
			i += 3
		default:
			i++
			c = label[i]
		}
		b.WriteByte(c)
	}
	return b.String()
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isPrivateReverse reports whether a name is the reverse name of a private address. Queries for such names must not be
// forwarded.
func isPrivateReverse(name string) bool {
	return dns.IsSubDomain("a.a.d.f.ip6.arpa.", dns.CanonicalName(name))
}
