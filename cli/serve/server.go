package serve

import (
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

// server is one server of a dev cluster: a process that is restarted whenever it exits,
// with the same name, ports and files.
type server struct {
	child
	role    bourse.Role
	listen  string // API address as configured; after the first start, the address that was assigned
	gossip  string
	http    string   // a proxy's HTTP address, configured and assigned like listen
	https   string   // a proxy's HTTPS address, likewise
	fixed   []string // arguments that are the same at every start
	cluster *cluster

	isReady chan struct{} // closed when the server is ready for the first time
	ended   chan struct{} // closed when run has returned
}

func (d *server) init(c *cluster) {
	d.cluster, d.gossip = c, "127.0.0.1:0"
	d.isReady, d.ended = make(chan struct{}), make(chan struct{})
	d.child.init(c.shell)
	d.args, d.announced = d.commandLine, d.noteReady
	d.failed = func(error) bool { return !isClosed(d.isReady) }
}

// run keeps the server running until quit is closed.
func (d *server) run() {
	defer close(d.ended)
	if err := d.child.run(); err != nil {
		err = bourse.Errorf(codeOfExit(err), "%s could not be started: %w", d.name, err)
		d.cluster.fail(cli.Hint(err, "see its output above"))
	}
}

// commandLine returns the arguments for the next start.
func (d *server) commandLine() []string {
	out := append(slices.Clip(d.fixed), "--listen", d.listen, "--life-line")
	out = append(out, "--cluster", d.cluster.name)
	if d.role == RoleNATS {
		return out
	}
	if d.role == bourse.RoleProxy {
		out = append(out, "--http", d.http+"=any", "--https", d.https+"=any")
	}
	out = append(out, "--name", d.name, "--log-level", d.cluster.config.logLevel)
	if d.cluster.nats != nil {
		return append(out, "--nats", "nats://"+d.cluster.nats.listen)
	}
	out = append(out, "--gossip", d.gossip)
	if others := d.cluster.others(d.name); len(others) > 0 {
		out = append(out, "--join", strings.Join(others, ","))
	}
	return out
}

// noteReady records the addresses of a server that is ready.
func (d *server) noteReady(r Ready) {
	if d.cluster.nats == nil || d.role != bourse.RoleWorker { // a worker on NATS does not listen on a port
		d.listen, d.gossip = r.API, r.Gossip
	}
	if d.role == bourse.RoleProxy && len(r.HTTP) > 0 && len(r.HTTPS) > 0 {
		d.http, d.https = r.HTTP[0], r.HTTPS[0]
	}
	r.ID = d.name
	first := !isClosed(d.isReady)
	d.cluster.noteReady(r, first)
	if first {
		close(d.isReady)
	}
}
