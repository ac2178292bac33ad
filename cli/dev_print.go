package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// devReady is what "bourse dev --json" prints once ready, and the content of
// its --ready-file.
type devReady struct {
	API     string  `json:"api"` // http://host:port
	PID     int     `json:"pid"` // to be signalled to end the cluster
	Data    string  `json:"data"`
	Servers []Ready `json:"servers"` // the broker first, then the workers by region

	TokenFile string `json:"token_file"` // with the token that clients show
}

func (c *devCluster) readiness() devReady {
	c.mu.Lock()
	defer c.mu.Unlock()
	data, err := filepath.Abs(c.config.data)
	if err != nil {
		data = c.config.data
	}
	broker := c.ready["broker"]
	r := devReady{API: "http://" + broker.API, PID: os.Getppid(), Data: data, TokenFile: broker.TokenFile}
	for _, d := range c.servers {
		r.Servers = append(r.Servers, c.ready[d.name])
	}
	return r
}

func (c *devCluster) writeReady() error {
	if c.config.readyFile == "" {
		return nil
	}
	data, err := json.MarshalIndent(c.readiness(), "", "  ")
	if err != nil {
		return err
	}
	if err := writeWhole(c.config.readyFile, append(data, '\n')); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "--ready-file: %w", err)
	}
	return nil
}

// tell says that the cluster is ready and what to type next.
func (c *devCluster) tell(took time.Duration) error {
	if err := c.writeReady(); err != nil {
		return err
	}
	if c.shell.json {
		return c.shell.printJSON(c.readiness())
	}
	memory, err := parseMiB(c.config.memory)
	if err != nil {
		return err
	}
	workers := len(c.servers) - 1
	var b strings.Builder
	fmt.Fprintf(&b, "Bourse is up: %s in %s and a broker, ready in %.2f s.\n\n",
		count(workers, "worker"), count(len(c.config.regions), "region"), took.Seconds())
	t := newTable("REGION", "WORKERS")
	t.indent = "  "
	for _, region := range c.config.regions {
		names := make([]string, c.config.workers)
		for n := range names {
			names[n] = serverName(region, n+1)
		}
		t.row(region, strings.Join(names, "  "))
	}
	if err := t.write(&b, 0); err != nil {
		return err
	}
	fmt.Fprintf(&b, "\nEach worker sells %s cores and %s.", c.config.cpus, mib(memory))
	if c.config.temporary {
		b.WriteString(" Files are temporary; --data DIR keeps them.")
	}
	b.WriteString("\n\nIn another terminal:\n\n")
	api := c.broker().API
	if !isDefaultAPI(api) {
		fmt.Fprintf(&b, "  export BOURSE_API=http://%s\n", api)
	}
	fmt.Fprintf(&b, "  export BOURSE_API_TOKEN=$(cat \"%s\")   # for clients other than bourse\n\n", c.broker().TokenFile)
	first := c.config.regions[0]
	fmt.Fprintf(&b, `  bourse machine run host --region %s --name hello -- sleep 600
  bourse machine list
  bourse machine status hello
  bourse quote host --vm-memory 8GiB           # nobody has that: see why
  bourse worker list

Ctrl-C ends it all and leaves nothing behind.
`, first)
	_, err = c.shell.Out.Write([]byte(b.String()))
	return err
}
