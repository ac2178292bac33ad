package host

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/fabric/nats"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/view/gossip"
)

// cluster checks the connections between this host's servers and the rest of their cluster.
type cluster struct {
	own     []serve.Server
	release string // release of this program; "" for a build without a release
	now     func() time.Time
	secure  bool
	creds   *admission.Credentials // nil if there are no valid credentials
	fabric  *direct.Fabric
}

// Limits for connections to other servers.
const (
	stepLimit      = 4 * time.Second // for connecting, or for a request and its answer
	askConcurrency = 128
)

func newCluster(own []serve.Server, release string, now func() time.Time) *cluster {
	c := &cluster{own: own, release: release, now: now}
	for _, s := range own {
		if !s.Credentials.TLS() {
			continue
		}
		c.secure = true
		if creds, err := admission.Load(s.Credentials.Files); err == nil {
			c.creds = creds
			break
		}
	}
	var secure direct.TLS
	if c.creds != nil {
		secure = c.creds.Client
	}
	c.fabric = direct.NewOver(direct.TCP, secure, admission.Proof{Cluster: own[0].Cluster})
	return c
}

// answer is the result of asking a server which members it lists.
type answer struct {
	bourse.Member
	gossip.Membership
	err error
}

// check checks the connections between this host and all other members, in both
// directions, the members' versions, and the clock.
func (c *cluster) check(ctx context.Context) []finding {
	defer c.fabric.Close()
	found := c.checkNATS(ctx)
	running, own := c.askOwn(ctx)
	joined, join := c.askJoin(ctx)
	found = slices.Concat(found, own, join)
	others, onNATS := c.others(slices.Concat(running, joined))
	replies := c.askOthers(ctx, others)
	found = append(found, c.checkMesh(ctx, running)...)
	if len(others) > 0 || onNATS == 0 {
		found = append(found, c.checkMembers(replies, running)...)
	}
	if onNATS > 0 {
		found = append(found, ok("members", "%s connected through NATS: not checked", cli.Count(onNATS, "member")))
	}
	found = append(found, c.checkVersions(slices.Concat(running, replies))...)
	return append(found, c.checkClock(ctx, c.clocks(others))...)
}

// checkNATS connects to each of the configured NATS servers. The cluster needs only one
// of them.
func (c *cluster) checkNATS(ctx context.Context) []finding {
	var addresses []string
	for _, s := range c.own {
		for _, text := range s.NATS.URLs {
			u, err := url.Parse(text)
			if err != nil { // the configuration check reports this error
				continue
			}
			address := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), natsPort))
			if !slices.Contains(addresses, address) {
				addresses = append(addresses, address)
			}
		}
	}
	found := make([]finding, len(addresses))
	forEach(len(addresses), func(i int) {
		if err := connect(ctx, addresses[i]); err != nil {
			what, try := unreached(err)
			found[i] = problem("NATS", try, "%s %s", addresses[i], what)
			return
		}
		found[i] = ok("NATS", "%s accepts connections", addresses[i])
	})
	return downgrade(found)
}

// downgrade turns problems into warnings if at least one of the findings is ok.
func downgrade(found []finding) []finding {
	if slices.ContainsFunc(found, func(f finding) bool { return f.Status == statusOK }) {
		for i := range found {
			if found[i].Status == statusProblem {
				found[i].Status = statusWarning
			}
		}
	}
	return found
}

// natsPort is the default port in the URLs of NATS servers.
const natsPort = "4222"

// askOwn asks this host's servers which members they list. It returns the answers of the
// servers that are running.
func (c *cluster) askOwn(ctx context.Context) ([]answer, []finding) {
	answers, found := make([]answer, len(c.own)), make([]finding, len(c.own))
	forEach(len(c.own), func(i int) {
		s := &c.own[i]
		name := string(s.Role) + " " + string(s.Name)
		switch {
		case s.NATS.Set() && s.Role == bourse.RoleWorker:
			found[i] = ok(name, "listens on NATS only: not checked")
			return
		case s.Listen.Port() == 0:
			found[i] = warning(name, "set address, or listen with a port", "not checked: its port is not configured")
			return
		case c.secure && c.creds == nil:
			found[i] = warning(name, "repeat the command once the certificates are valid", "not checked: no server of this host has a valid certificate")
			return
		}
		a := c.ask(ctx, bourse.Member{ID: s.Name, Role: s.Role, Address: s.Listen.String()})
		if a.err == nil {
			answers[i], found[i] = a, ok(name, "answers at %s", a.Address)
			return
		}
		what, try := unreached(a.err)
		if _, misnamed := errors.AsType[x509.HostnameError](a.err); !misnamed {
			try = "bourse serve, to run the servers of this host"
			if systemd() {
				try = "systemctl status bourse; journalctl -u bourse"
			}
		}
		found[i] = problem(name, try, "%s %s", a.Address, what)
	})
	return slices.DeleteFunc(answers, func(a answer) bool { return a.ID == "" }), found
}

// checkMesh asks this host's worker for its connections to workers with machines in the same private networks.
func (c *cluster) checkMesh(ctx context.Context, running []answer) []finding {
	i := slices.IndexFunc(running, func(a answer) bool { return a.Role == bourse.RoleWorker })
	if worker := workerOf(c.own); i < 0 || worker == nil || !worker.Mesh.IsValid() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	facts, err := fabric.WorkerFacts.Call(ctx, c.fabric, running[i].Member, struct{}{})
	if err != nil {
		return []finding{warning("mesh", "bourse worker show "+string(running[i].ID), "not checked: %v", err)}
	}
	return meshFindings(facts.Mesh, c.now())
}

// meshFindings reports which peers of a worker have had a handshake recently. m is nil if the worker cannot have a mesh.
func meshFindings(m *bourse.Mesh, now time.Time) []finding {
	const name = "mesh"
	if m == nil {
		return []finding{warning(name, "see the findings about networks, and the worker's log", "the worker has no mesh: machines can reach only machines on this host by their private addresses")}
	}
	if len(m.Peers) == 0 {
		return []finding{ok(name, "no other worker has machines in the same private networks")}
	}
	var found []finding
	reached := 0
	for i := range m.Peers {
		p := &m.Peers[i]
		if p.Reachable(now) {
			reached++
			continue
		}
		when := "has never been connected"
		if !p.Handshake.IsZero() {
			when = "was last connected " + cli.Age(now.Sub(p.Handshake)) + " ago"
		}
		found = append(found, warning(name, "allow UDP packets to the mesh port on one of the two hosts", "worker %s %s: its machines cannot be reached by their private addresses", p.Worker, when))
	}
	if reached > 0 {
		found = append(found, ok(name, "connected to %s with machines in the same private networks", cli.Count(reached, "worker")))
	}
	return found
}

// askJoin connects to the membership addresses in the configuration, and asks the servers
// there which members they list. A host that has not joined its cluster yet knows only
// these addresses. It can join if it reaches one of them.
func (c *cluster) askJoin(ctx context.Context) ([]answer, []finding) {
	joined := c.joined()
	answers, found := make([]answer, len(joined)), make([]finding, len(joined))
	forEach(len(joined), func(i int) {
		address := joined[i]
		err := connect(ctx, address)
		if api := apiOf(address); err == nil && api != "" && c.creds != nil {
			var m bourse.Member
			switch m, err = c.identify(ctx, api); {
			case err == nil:
				answers[i] = c.ask(ctx, m)
			case errors.Is(err, syscall.ECONNREFUSED): // the server's API does not use the default port
				err = nil
			default:
				address = api
			}
		}
		if err != nil {
			what, try := unreached(err)
			found[i] = problem("join", try, "%s %s", address, what)
			return
		}
		found[i] = ok("join", "%s accepts connections", address)
	})
	return slices.DeleteFunc(answers, func(a answer) bool { return a.ID == "" }), downgrade(found)
}

// joined returns the membership addresses in the join settings, except those of this
// host's own servers.
func (c *cluster) joined() []string {
	var out []string
	for _, s := range c.own {
		for _, address := range s.Join {
			own := slices.ContainsFunc(c.own, func(s serve.Server) bool { return s.Gossip.String() == address })
			if !own && !slices.Contains(out, address) {
				out = append(out, address)
			}
		}
	}
	return out
}

// apiOf returns the API address of the server with this membership address. It returns
// "" if the port is not the default membership port of any role.
func apiOf(join string) string {
	host, port, _ := net.SplitHostPort(join)
	for _, role := range bourse.ServerRoles() {
		if api, gossip := serve.Ports(role); port == strconv.Itoa(int(gossip)) {
			return net.JoinHostPort(host, strconv.Itoa(int(api)))
		}
	}
	return ""
}

// identify connects to a server and returns the member that the server's certificate
// names. The certificate must belong to this cluster.
func (c *cluster) identify(ctx context.Context, address string) (bourse.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	own := c.creds.Client()
	config := admission.AnyServer(own.RootCAs, bourse.ServerRoles()...)
	config.Certificates = own.Certificates
	m := bourse.Member{Address: address}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return m, err
	}
	defer conn.Close()
	who, err := admission.IdentityOf(conn.(*tls.Conn).ConnectionState().PeerCertificates[0])
	m.ID, m.Role = who.ID, who.Role
	return m, err
}

func connect(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// ask asks a server which members it lists. If ids are given, it asks only about those members.
func (c *cluster) ask(ctx context.Context, m bourse.Member, ids ...string) answer {
	a := answer{Member: m}
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	where := &url.URL{Path: gossip.PathMembers, RawQuery: url.Values{"id": ids}.Encode()}
	resp, err := c.fabric.Call(ctx, m, &http.Request{Method: http.MethodGet, URL: where, Header: http.Header{}})
	if err != nil {
		a.err = err
		return a
	}
	defer resp.Body.Close()
	a.Membership, a.err = gossip.ReadMembership(resp)
	return a
}

// forEach calls do with the numbers from 0 to n-1, with up to askConcurrency calls at the
// same time.
func forEach(n int, do func(i int)) {
	var running errgroup.Group
	running.SetLimit(askConcurrency)
	for i := range n {
		running.Go(func() error {
			do(i)
			return nil
		})
	}
	_ = running.Wait() // the functions return no errors
}

// others returns the servers that answered and the members that they listed, sorted by name, without this host's own
// servers. It omits members that can be reached only through NATS, and returns their number as onNATS.
func (c *cluster) others(answers []answer) (others []bourse.Member, onNATS int) {
	byID := map[bourse.WorkerID]bourse.Member{}
	for _, a := range answers {
		byID[a.ID] = a.Member
		for _, m := range a.Members {
			if _, known := byID[m.ID]; !known || !nats.IsAddress(m.Address) { // brokers and proxies may use both networks
				byID[m.ID] = m
			}
		}
	}
	for _, s := range c.own {
		delete(byID, s.Name)
	}
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		if nats.IsAddress(byID[id].Address) {
			onNATS++
			continue
		}
		others = append(others, byID[id])
	}
	return others, onNATS
}

// askOthers asks each member whether it lists this host's servers.
func (c *cluster) askOthers(ctx context.Context, others []bourse.Member) []answer {
	var ids []string
	for _, s := range c.own {
		ids = append(ids, string(s.Name))
	}
	answers := make([]answer, len(others))
	forEach(len(others), func(i int) { answers[i] = c.ask(ctx, others[i], ids...) })
	return answers
}

// checkMembers returns a finding for each member that does not answer, and for each one
// that does not list this host's running servers. A server lists another server once it
// has connected to that server's API, and for as long as that server responds to
// gossip.
func (c *cluster) checkMembers(replies, running []answer) []finding {
	var found []finding
	good := 0
	for _, a := range replies {
		name := string(a.Role) + " " + string(a.ID)
		if a.err != nil {
			what, try := unreached(a.err)
			found = append(found, problem(name, try, "%s %s", a.Address, what))
			continue
		}
		var unknown, ports []string
		for _, s := range c.own {
			is := func(o answer) bool { return o.ID == s.Name }
			listed := slices.ContainsFunc(a.Members, func(m bourse.Member) bool { return m.ID == s.Name })
			if !listed && slices.ContainsFunc(running, is) {
				unknown = append(unknown, string(s.Name))
				ports = append(ports, fmt.Sprintf("TCP port %d, and TCP and UDP port %d", s.Listen.Port(), s.Gossip.Port()))
			}
		}
		if len(unknown) == 0 {
			good++
			continue
		}
		host, _, _ := net.SplitHostPort(a.Address)
		found = append(found, problem(name, "allow connections from "+host+" to this host: "+strings.Join(ports, "; ")+". Check that both hosts have the same gossip.key", "it answers, but does not list %s as a member", strings.Join(unknown, " and ")))
	}
	switch {
	case good > 0 && len(running) > 0:
		found = append(found, ok("members", "reached %s, each of which lists the servers of this host", cli.Count(good, "other member")))
	case good > 0:
		found = append(found, ok("members", "reached %s", cli.Count(good, "other member")))
	case len(replies) == 0 && len(running) > 0 && len(c.joined()) == 0:
		found = append(found, ok("members", "the cluster has no other members"))
	case len(replies) == 0 && len(running) > 0:
		found = append(found, problem("members", "check the addresses in join, and that both hosts have the same gossip.key and cluster", "no other server lists the servers of this host"))
	}
	return found
}

// checkVersions compares the members' releases with this program's.
func (c *cluster) checkVersions(answers []answer) []finding {
	const name = "versions"
	if c.release == "" { // this program is a build without a release
		return nil
	}
	var found []finding
	same := 0
	for _, a := range answers {
		switch {
		case a.err != nil:
		case a.Release == c.release:
			same++
		case slices.ContainsFunc(c.own, func(s serve.Server) bool { return s.Name == a.ID }):
			found = append(found, warning(name, "restart the servers of this host: machines keep running", "%s runs %s, and this program is %s", a.ID, released(a.Release), c.release))
		default:
			found = append(found, warning(name, "upgrade all hosts to the same release", "%s runs %s, and this program is %s", a.ID, released(a.Release), c.release))
		}
	}
	if same > 0 {
		found = append(found, ok(name, "%s run %s, like this program", cli.Count(same, "server"), c.release))
	}
	return found
}

func released(release string) string {
	if release == "" {
		return "a build without a release"
	}
	return release
}

// unreached describes why a server could not be queried, and suggests a remedy. The description is the rest of a
// sentence that begins with the server's address, for example "refuses connections".
func unreached(err error) (what, try string) {
	invalid, wrong := errors.AsType[x509.CertificateInvalidError](err)
	_, untrusted := errors.AsType[x509.UnknownAuthorityError](err)
	_, misnamed := errors.AsType[x509.HostnameError](err)
	timeout, temporary := errors.AsType[net.Error](err)
	switch {
	case untrusted:
		return "has a certificate of another cluster", "check that the address is right, and that both hosts have the same ca.pem"
	case wrong && invalid.Reason == x509.Expired:
		return fmt.Sprintf("has a certificate that is valid from %s to %s", invalid.Cert.NotBefore.UTC().Format(time.RFC3339), invalid.Cert.NotAfter.UTC().Format(time.RFC3339)),
			"bourse doctor, on that host"
	case misnamed:
		return "is the address of another server", "check that no two hosts have the same address, and restart the servers that have moved"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refuses connections", "start the server on that host, or allow connections to the port"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), temporary && timeout.Timeout():
		return "does not respond", "allow connections from this host to the port, and check that the host is running"
	}
	return "cannot be asked: " + causeOf(err).Error(), "bourse doctor, on that host"
}

// causeOf returns the innermost error, without the context that this program added.
func causeOf(err error) error {
	for {
		e, ok := errors.AsType[*bourse.Error](err)
		if !ok || e.Err == nil {
			return err
		}
		err = e.Err
	}
}
