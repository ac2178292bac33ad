package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/bourse-dev/bourse"
)

// asking is the machine that sends the queries in these tests.
var asking = Spec{Machine: "00000100000001", App: "front", Network: "one/"}

func newTestResolver(names Names) *resolver {
	cfg := Config{Upstream: []string{"127.0.0.1:1"}, Log: slog.New(slog.DiscardHandler)}
	return newResolver(cfg, names, func(from netip.Addr) (Spec, bool) { return asking, from == asking.address() })
}

// ask returns the reply to a query over TCP. The reply is encoded and decoded first.
func ask(t testing.TB, r *resolver, name string, kind uint16) *dns.Msg {
	t.Helper()
	return wire(t, r.handle(t.Context(), asking.address(), true, new(dns.Msg).SetQuestion(name, kind)))
}

func wire(t testing.TB, m *dns.Msg) *dns.Msg {
	t.Helper()
	packed, err := m.Pack()
	if err != nil {
		t.Fatalf("pack %v: %v", m, err)
	}
	out := new(dns.Msg)
	if err := out.Unpack(packed); err != nil {
		t.Fatalf("unpack: %v", err)
	}
	return out
}

// summary returns a reply as one line: its code, then the sorted answers.
func summary(m *dns.Msg) string {
	var out []string
	for _, rr := range m.Answer {
		switch rr := rr.(type) {
		case *dns.AAAA:
			out = append(out, rr.AAAA.String())
		case *dns.TXT:
			out = append(out, strings.Join(rr.Txt, ""))
		}
	}
	slices.Sort(out)
	return strings.Join(append([]string{dns.RcodeToString[m.Rcode]}, out...), " ")
}

// market returns names with one app of each kind, and a function that returns the address
// of the machine with a given number.
func market() (*fakeNames, func(int) string) {
	f := &fakeNames{apps: map[bourse.AppName]bourse.App{
		"back":    {Name: "back", Org: "one"},
		"empty":   {Name: "empty", Org: "one"},
		"checked": {Name: "checked", Org: "one"},
		"down":    {Name: "down", Org: "one"},
		"other":   {Name: "other", Org: "two"},
		"own":     {Name: "own", Org: "one", Network: "special"},
		"buried":  {Name: "buried", Org: "one", DeletedAt: new(time.Unix(1, 0))},
	}, machines: map[bourse.AppName][]bourse.Machine{}}
	address := func(n int) string {
		return bourse.PrivateAddress("one/", bourse.MachineID(fmt.Sprintf("%06x%08x", 1+n/10, n))).String()
	}
	add := func(app bourse.AppName, n int, change func(*bourse.Machine)) {
		id := bourse.MachineID(fmt.Sprintf("%06x%08x", 1+n/10, n))
		a := f.apps[app]
		m := bourse.Machine{ID: id, App: app, Region: "mad", State: bourse.StateStarted, PrivateIP: bourse.PrivateAddress(a.PrivateNetwork(), id)}
		if change != nil {
			change(&m)
		}
		f.machines[app] = append(f.machines[app], m)
	}
	add("back", 2, func(m *bourse.Machine) {
		m.Name = "web-1"
		m.Config.Metadata = map[string]string{"fly_process_group": "Web", "Color": "bl.ue"}
	})
	add("back", 13, func(m *bourse.Machine) { m.Cordoned, m.Name = true, "00000100000002" }) // the id of another machine
	add("back", 24, func(m *bourse.Machine) { m.Region = "gru" })
	add("back", 5, func(m *bourse.Machine) { m.State, m.Region = bourse.StateStopped, "cdg" })
	add("back", 6, func(m *bourse.Machine) { m.Config.DNS = &bourse.DNS{SkipRegistration: true} })
	add("back", 7, func(m *bourse.Machine) { m.PrivateIP = netip.Addr{} })
	add("back", 8, func(m *bourse.Machine) { m.PrivateIP = bourse.PrivateAddress("two/", m.ID) })
	add("back", 9, func(m *bourse.Machine) { m.State = bourse.StateDestroyed })
	// These machines have readiness checks. Only the first one is ready.
	readiness := func(up bourse.CheckState) func(*bourse.Machine) {
		return func(m *bourse.Machine) {
			m.Name = "ready-" + string(up)
			m.Config.Checks = json.RawMessage(`{"up":{"type":"tcp","port":80,"kind":"readiness"}}`)
			m.Config.Metadata = map[string]string{"fly_process_group": "db"}
			m.Checks = &bourse.CheckResults{Results: []bourse.CheckStatus{{Name: "up", Status: up}}}
		}
	}
	add("checked", 31, readiness(bourse.CheckPassing))
	add("checked", 32, readiness(bourse.CheckCritical))
	add("down", 33, readiness(bourse.CheckCritical))
	add("other", 3, nil)
	add("own", 4, nil)
	return f, address
}

func TestNames(t *testing.T) {
	names, a := market()
	r := newTestResolver(names)
	all := strings.Join(slices.Sorted(slices.Values([]string{a(2), a(13), a(24)})), " ")
	for _, c := range []struct {
		name string
		kind uint16
		want string
	}{
		{"back.internal.", dns.TypeAAAA, "NOERROR " + all},
		{"BACK.Internal.", dns.TypeAAAA, "NOERROR " + all},
		{"global.back.internal.", dns.TypeAAAA, "NOERROR " + all},
		{"back.internal.", dns.TypeA, "NOERROR"}, // the name exists: clients would apply "no such name" to AAAA, too
		{"back.internal.", dns.TypeTXT, "NOERROR"},
		{"back.internal.", dns.TypeANY, "NOERROR " + all},
		{"empty.internal.", dns.TypeAAAA, "NOERROR"},
		{"nobody.internal.", dns.TypeAAAA, "NXDOMAIN"},
		{"other.internal.", dns.TypeAAAA, "NXDOMAIN"},
		{"own.internal.", dns.TypeAAAA, "NXDOMAIN"},
		{"buried.internal.", dns.TypeAAAA, "NXDOMAIN"},
		{"vms.other.internal.", dns.TypeTXT, "NXDOMAIN"},
		{"vm.other.internal.", dns.TypeTXT, "NXDOMAIN"},
		{"gru.back.internal.", dns.TypeAAAA, "NOERROR " + a(24)},
		{"cdg.back.internal.", dns.TypeAAAA, "NOERROR"},
		{"lhr.back.internal.", dns.TypeAAAA, "NXDOMAIN"},
		{"00000100000002.vm.back.internal.", dns.TypeAAAA, "NOERROR " + a(2)},
		{"00000100000005.vm.back.internal.", dns.TypeAAAA, "NOERROR"},
		{"00000100000007.vm.back.internal.", dns.TypeAAAA, "NXDOMAIN"}, // on the host's network
		{"00000100000008.vm.back.internal.", dns.TypeAAAA, "NXDOMAIN"}, // its record contains an address of another network
		{"00000100000009.vm.back.internal.", dns.TypeAAAA, "NXDOMAIN"},
		{"00000100000099.vm.back.internal.", dns.TypeAAAA, "NXDOMAIN"},
		{"web-1.vm.back.internal.", dns.TypeAAAA, "NOERROR " + a(2)},
		{"Web-1.VM.back.internal.", dns.TypeAAAA, "NOERROR " + a(2)},
		{"web-2.vm.back.internal.", dns.TypeAAAA, "NXDOMAIN"},
		{"web-1.vm.other.internal.", dns.TypeAAAA, "NXDOMAIN"},
		{"vm.back.internal.", dns.TypeAAAA, "NOERROR"},
		{"web.process.back.internal.", dns.TypeAAAA, "NOERROR " + a(2)},
		{"cron.process.back.internal.", dns.TypeAAAA, "NXDOMAIN"},
		{`bl\.ue.color.kv._metadata.back.internal.`, dns.TypeAAAA, "NOERROR " + a(2)},
		{"red.color.kv._metadata.back.internal.", dns.TypeAAAA, "NXDOMAIN"},
		{"kv._metadata.back.internal.", dns.TypeAAAA, "NOERROR"},
		{"top9.nearest.of.back.internal.", dns.TypeAAAA, "NOERROR " + all},
		{"top0.nearest.of.back.internal.", dns.TypeAAAA, "NXDOMAIN"},
		{"vms.back.internal.", dns.TypeTXT, "NOERROR 00000100000002 mad,0000020000000d mad,00000300000018 gru"},
		{"all.vms.back.internal.", dns.TypeTXT, "NOERROR 00000100000002 mad,00000100000005 cdg,00000100000006 mad,0000020000000d mad,00000300000018 gru"},
		{"regions.back.internal.", dns.TypeTXT, "NOERROR gru,mad"},
		{"all.regions.back.internal.", dns.TypeTXT, "NOERROR cdg,gru,mad"},
		{"checked.internal.", dns.TypeAAAA, "NOERROR " + a(31)},
		{"mad.checked.internal.", dns.TypeAAAA, "NOERROR " + a(31)},
		{"db.process.checked.internal.", dns.TypeAAAA, "NOERROR " + a(31)},
		{"db.fly_process_group.kv._metadata.checked.internal.", dns.TypeAAAA, "NOERROR " + a(31)},
		{"top9.nearest.of.checked.internal.", dns.TypeAAAA, "NOERROR " + a(31)},
		{"ready-critical.vm.checked.internal.", dns.TypeAAAA, "NOERROR " + a(32)}, // the question names this machine, so it need not be ready
		{"vms.checked.internal.", dns.TypeTXT, "NOERROR 0000040000001f mad,00000400000020 mad"},
		{"down.internal.", dns.TypeAAAA, "NOERROR"},
		{"db.process.down.internal.", dns.TypeAAAA, "NOERROR"}, // the name exists
		{"_apps.internal.", dns.TypeTXT, "NOERROR back,checked,down,empty"},
		{"_instances.internal.", dns.TypeTXT, "NOERROR instance=00000100000002,app=back,ip=" + a(2) +
			",region=mad;instance=0000020000000d,app=back,ip=" + a(13) + ",region=mad;instance=00000300000018,app=back,ip=" + a(24) + ",region=gru" +
			";instance=0000040000001f,app=checked,ip=" + a(31) + ",region=mad;instance=00000400000020,app=checked,ip=" + a(32) + ",region=mad" +
			";instance=00000400000021,app=down,ip=" + a(33) + ",region=mad"},
		{"_peer.internal.", dns.TypeTXT, "NXDOMAIN"},
		{"internal.", dns.TypeAAAA, "NOERROR"},
		{"a.b.c.d.e.internal.", dns.TypeAAAA, "NXDOMAIN"},
		{`a\000b.internal.`, dns.TypeAAAA, "NXDOMAIN"},
		{"2.0.0.0.a.a.d.f.ip6.arpa.", dns.TypePTR, "NXDOMAIN"},
		{"internal.", dns.TypeAXFR, "NOERROR"},
		{"example.com.", dns.TypeAXFR, "REFUSED"},
		{"example.com.", dns.TypeA, "SERVFAIL"}, // no name server answers
	} {
		got := ask(t, r, c.name, c.kind)
		if s := summary(got); s != c.want {
			t.Errorf("%s %s: got %q, want %q", dns.TypeToString[c.kind], c.name, s, c.want)
		}
		_, ours := inZone(c.name)
		if negative := len(got.Answer) == 0 && ours; negative != (len(got.Ns) == 1 && got.Ns[0].Header().Rrtype == dns.TypeSOA) {
			t.Errorf("%s: authority %v", c.name, got.Ns)
		}
		if got.Authoritative != ours {
			t.Errorf("%s: authoritative %t", c.name, got.Authoritative)
		}
		for _, rr := range got.Answer {
			if rr.Header().Ttl != timeToLive {
				t.Errorf("%s: TTL %d", c.name, rr.Header().Ttl)
			}
		}
	}
}

// top<n>.nearest returns n of the three machines.
func TestNearest(t *testing.T) {
	names, _ := market()
	r := newTestResolver(names)
	for name, want := range map[string]int{"top1.nearest.of.back.internal.": 1, "top2.nearest.of.back.internal.": 2} {
		if got := ask(t, r, name, dns.TypeAAAA); got.Rcode != dns.RcodeSuccess || len(got.Answer) != want {
			t.Errorf("%s: got %v, want %d addresses", name, got, want)
		}
	}
}

// The machines on the client's own host are nearest, followed by those in its region.
func TestNearestAcrossWorkers(t *testing.T) {
	names := &fakeNames{}
	far := Spec{Machine: "00000300000001", App: "back", Network: "one/"}
	here, near := Spec{Machine: "00000100000002", App: "back", Network: "one/"}, Spec{Machine: "00000200000001", App: "back", Network: "one/"}
	names.hold(far, near, here, Spec{Machine: asking.Machine, App: "front", Network: "one/"})
	names.machines["back"][0].Region = "gru"
	cfg := Config{Upstream: []string{"127.0.0.1:1"}, Region: "mad", Log: slog.New(slog.DiscardHandler)}
	r := newResolver(cfg, names, func(from netip.Addr) (Spec, bool) { return asking, from == asking.address() })
	for n, want := range [][]Spec{1: {here}, 2: {here, near}, 3: {here, near, far}, 4: {here, near, far}} {
		if n == 0 {
			continue
		}
		addresses := []string{"NOERROR"}
		for _, s := range want {
			addresses = append(addresses, s.address().String())
		}
		slices.Sort(addresses[1:])
		got := summary(ask(t, r, fmt.Sprintf("top%d.nearest.of.back.internal.", n), dns.TypeAAAA))
		if got != strings.Join(addresses, " ") {
			t.Errorf("top%d: got %s, want %s", n, got, addresses)
		}
	}
}

func TestResolverAccess(t *testing.T) {
	names, _ := market()
	r := newTestResolver(names)
	q := new(dns.Msg).SetQuestion("back.internal.", dns.TypeAAAA)
	if got := r.handle(t.Context(), netip.MustParseAddr("fdaa::99"), true, q); got != nil {
		t.Errorf("query from an unknown address: got %v, want no reply", got)
	}
	q.Response = true
	if got := r.handle(t.Context(), asking.address(), true, q); got != nil {
		t.Errorf("message that is a reply: got %v, want no reply", got)
	}
}

func TestOddQuestions(t *testing.T) {
	names, _ := market()
	r := newTestResolver(names)
	for want, change := range map[int]func(*dns.Msg){
		dns.RcodeFormatError:    func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) },
		dns.RcodeNotImplemented: func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate },
		dns.RcodeRefused:        func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS },
		dns.RcodeBadVers:        func(m *dns.Msg) { m.SetEdns0(512, false); m.IsEdns0().SetVersion(1) },
	} {
		q := new(dns.Msg).SetQuestion("back.internal.", dns.TypeAAAA)
		change(q)
		got := wire(t, r.handle(t.Context(), asking.address(), true, q))
		if code := got.Rcode; code != want {
			t.Errorf("%s, want %s", dns.RcodeToString[code], dns.RcodeToString[want])
		}
	}
	if got := r.handle(t.Context(), asking.address(), true, new(dns.Msg)); got.Rcode != dns.RcodeFormatError {
		t.Errorf("no question: %v", got)
	}
}

func TestLargeAnswers(t *testing.T) {
	names, _ := market()
	for i := range 900 {
		id := bourse.MachineID(fmt.Sprintf("000009%08x", i))
		names.machines["empty"] = append(names.machines["empty"], bourse.Machine{
			ID: id, State: bourse.StateStarted, Region: "mad", PrivateIP: bourse.PrivateAddress("one/", id),
		})
	}
	r := newTestResolver(names)
	for _, name := range []string{"empty.internal.", "vms.empty.internal."} {
		kind := dns.TypeAAAA
		if strings.HasPrefix(name, "vms") {
			kind = dns.TypeTXT
		}
		for edns, most := range map[uint16]int{0: 512, 100: 512, 1000: 1000, 65535: ednsSize} {
			q := new(dns.Msg).SetQuestion(name, kind)
			if edns > 0 {
				q.SetEdns0(edns, false)
			}
			got := r.handle(t.Context(), asking.address(), false, q)
			packed, err := got.Pack()
			if err != nil || len(packed) > most || !got.Truncated {
				t.Errorf("%s over UDP, EDNS %d: got %d bytes, truncated %t, %v; want at most %d bytes, truncated", name, edns, len(packed), got.Truncated, err, most)
			}
			if (got.IsEdns0() != nil) != (edns > 0) {
				t.Errorf("%s: the reply contains EDNS: %t; the query's EDNS size was %d", name, got.IsEdns0() != nil, edns)
			}
		}
		if got := ask(t, r, name, kind); got.Truncated || len(summary(got)) < 900*15 {
			t.Errorf("%s over TCP: truncated %t, %d bytes", name, got.Truncated, len(summary(got)))
		}
	}
}

func TestNamesFail(t *testing.T) {
	names, a := market()
	r := newTestResolver(names)
	names.fail(errors.New("the store is gone"))
	for _, name := range []string{"back.internal.", "nobody.internal.", "_apps.internal."} {
		if got := summary(ask(t, r, name, dns.TypeAAAA)); got != "SERVFAIL" {
			t.Errorf("%s: %s", name, got)
		}
	}
	names.fail(nil)
	if got := summary(ask(t, r, "00000100000002.vm.back.internal.", dns.TypeAAAA)); got != "NOERROR "+a(2) {
		t.Errorf("immediately after Names works again: got %s", got)
	}
}

// Many concurrent queries cause only one lookup, whose result is cached for a short time.
func TestConcurrentLookupsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names, _ := market()
		r := newTestResolver(names)
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				if got := ask(t, r, "back.internal.", dns.TypeAAAA); len(got.Answer) != 3 {
					t.Errorf("%v", got)
				}
			})
		}
		wg.Wait()
		if names.asked != 1 {
			t.Errorf("got %d lookups, want 1", names.asked)
		}
		names.mu.Lock()
		delete(names.machines, "back")
		names.mu.Unlock()
		time.Sleep(entryLife + time.Millisecond)
		if got := ask(t, r, "back.internal.", dns.TypeAAAA); len(got.Answer) != 0 {
			t.Errorf("after %s: got %v, want no addresses", entryLife, got)
		}
	})
}

func TestDirectoryStaysSmall(t *testing.T) {
	names, _ := market()
	var d directory
	d.names = names
	for i := range 3 * maxEntries {
		if _, err := d.lookup(t.Context(), bourse.AppName(fmt.Sprintf("app-%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	if len(d.entries) > maxEntries {
		t.Errorf("got %d entries, want at most %d", len(d.entries), maxEntries)
	}
}

func TestRates(t *testing.T) {
	var r rates
	now := time.Unix(1000, 0)
	allowed := 0
	for range 3 * questionBurst {
		if r.allow("00000100000001", now) {
			allowed++
		}
	}
	if allowed != questionBurst {
		t.Errorf("got %d queries allowed at once, want %d", allowed, questionBurst)
	}
	if !r.allow("00000100000002", now) {
		t.Error("another machine's query is refused")
	}
	if now = now.Add(time.Second / 2); !r.allow("00000100000001", now) {
		t.Error("no query is allowed after half a second")
	}
	if now = now.Add(-time.Hour); r.allow("00000100000002", now) != true {
		t.Error("after the clock went backward, no query is allowed")
	}
	names, _ := market()
	rs := newTestResolver(names)
	refused := func() bool { return strings.HasPrefix(summary(ask(t, rs, "internal.", dns.TypeA)), "REFUSED") }
	for range 1 << 20 {
		if refused() {
			return
		}
	}
	t.Error("a machine's queries are never refused")
}

func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{"plain": "plain", `a\.b`: "a.b", `a\032b`: "a b", `\`: `\`, `x\25`: "x25", `\255`: "\xff"} {
		if got := unescape(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// FuzzHandle checks that each message that a machine may send results in a valid reply of a
// permitted size, or in no reply.
func FuzzHandle(f *testing.F) {
	for _, name := range []string{"back.internal.", "vms.back.internal.", `a\.b.c.kv._metadata.back.internal.`, "top3.nearest.of.back.internal.", "example.com.", "."} {
		m := new(dns.Msg).SetQuestion(name, dns.TypeANY)
		m.SetEdns0(4096, true)
		packed, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed, false)
	}
	f.Add([]byte{0, 1, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 0, 1}, true)
	names, _ := market()
	r := newTestResolver(names)
	r.forwarder = &forwarder{file: "/dev/null", slots: make(chan struct{}, 1)}
	f.Fuzz(func(t *testing.T, data []byte, overTCP bool) {
		q := new(dns.Msg)
		if q.Unpack(data) != nil {
			return
		}
		r.rates = rates{}
		got := r.handle(t.Context(), asking.address(), overTCP, q)
		if got == nil {
			if !q.Response {
				t.Error("a query is not answered")
			}
			return
		}
		packed, err := got.Pack()
		if err != nil {
			t.Fatalf("%v: the reply cannot be encoded: %v", q, err)
		}
		if got.Id != q.Id || !got.Response {
			t.Errorf("not a reply: %v", got)
		}
		most := dns.MinMsgSize
		switch {
		case overTCP:
			most = dns.MaxMsgSize
		case q.IsEdns0() != nil:
			most = ednsSize
		}
		// The reply always repeats the question, however long it is.
		if len(packed) > most && len(got.Answer)+len(got.Ns) > 0 {
			t.Errorf("got %d bytes, want at most %d", len(packed), most)
		}
	})
}
