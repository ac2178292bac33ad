package serve

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/internal/loopback"
)

// clusterReady is printed by "bourse dev --json" and written to --ready-file once the
// cluster is ready.
type clusterReady struct {
	API     string  `json:"api"`                   // http://host:port
	Proxy   string  `json:"proxy,omitempty"`       // http://host:port; "" if the cluster has no proxy
	Secure  string  `json:"proxy_https,omitempty"` // https://host:port, with a self-signed certificate
	PID     int     `json:"pid"`                   // process that must be signaled to stop the cluster
	Data    string  `json:"data"`
	Servers []Ready `json:"servers"` // the broker first, then the workers by region, then the proxy

	TokenFile string `json:"token_file"` // file with the token that clients must send
}

func (c *cluster) readiness() clusterReady {
	c.mu.Lock()
	defer c.mu.Unlock()
	data, err := filepath.Abs(c.config.data)
	if err != nil {
		data = c.config.data
	}
	broker := c.ready["broker"]
	r := clusterReady{API: "http://" + broker.API, PID: os.Getppid(), Data: data, TokenFile: broker.TokenFile}
	if p := c.ready["proxy"]; len(p.HTTP) > 0 {
		r.Proxy = "http://" + p.HTTP[0]
	}
	if p := c.ready["proxy"]; len(p.HTTPS) > 0 {
		r.Secure = "https://" + p.HTTPS[0]
	}
	for _, d := range c.servers {
		r.Servers = append(r.Servers, c.ready[d.name])
	}
	return r
}

func (c *cluster) writeReady() error {
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

// noContainerd explains why machines can use only the image "host".
func (d *config) noContainerd() string {
	switch {
	case d.containerd == ContainerdNone:
		return "Machines can only run commands of this host (image host), because --containerd is none."
	case os.Geteuid() != 0:
		return "Machines can only run commands of this host (image host): other images require containerd and root."
	}
	return "Machines can only run commands of this host (image host): no containerd was found for other images."
}

// announce prints a message that the cluster is ready, with commands to try.
func (c *cluster) announce(took time.Duration) error {
	if err := c.writeReady(); err != nil {
		return err
	}
	api, err := netip.ParseAddrPort(c.broker().API)
	if err == nil {
		err = loopback.SetDev(c.shell.Getenv, api)
	}
	if err != nil {
		c.shell.Note("warning: context dev does not point to this cluster: " + err.Error())
	}
	if c.shell.JSON {
		return c.shell.PrintJSON(c.readiness())
	}
	memory, err := cli.ParseMiB(c.config.memory)
	if err != nil {
		return err
	}
	proxy, secure, and := c.readiness().Proxy, c.readiness().Secure, " and a broker"
	if proxy != "" {
		and = ", a broker and a proxy"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Bourse is up: %s in %s%s, ready in %.2f s.\n\n",
		cli.Count(len(c.workers()), "worker"), cli.Count(len(c.config.regions), "region"), and, took.Seconds())
	t := cli.NewTable("REGION", "WORKERS")
	t.Indent = "  "
	for _, region := range c.config.regions {
		names := make([]string, c.config.workers)
		for n := range names {
			names[n] = serverName(region, n+1)
		}
		t.Row(region, strings.Join(names, "  "))
	}
	b.WriteString(t.String())
	fmt.Fprintf(&b, "\nEach worker offers %s cores and %s of memory.", c.config.cpus, cli.MiB(memory))
	if c.config.temporary {
		b.WriteString(" Files are temporary; to keep them, use --data DIR.")
	}
	if ContainerdAddress(c.config.containerd) == "" {
		b.WriteString("\n" + c.config.noContainerd())
	}
	b.WriteString("\n\nIn another terminal:\n\n")
	if all, err := cli.LoadContexts(c.shell.Getenv); err == nil && all.Current != "" && all.Current != cli.DevContext {
		fmt.Fprintf(&b, "  bourse context use dev   # commands currently use context %s\n", all.Current)
	}
	if !isDefaultAPI(c.broker().API) {
		fmt.Fprintf(&b, "  export BOURSE_API=http://%s\n", api)
	}
	fmt.Fprintf(&b, "  export BOURSE_API_TOKEN=$(cat \"%s\")   # for clients other than bourse\n", c.broker().TokenFile)
	fmt.Fprintf(&b, "  export FLY_{FLAPS,API,UIEX}_BASE_URL=http://%s   # for flyctl\n  export FLY_API_TOKEN=$BOURSE_API_TOKEN\n\n", api)
	first := c.config.regions[0]
	fmt.Fprintf(&b, `  bourse machine run host --region %s --name hello -- sleep 600
  bourse machine list
  bourse machine status hello
  bourse quote host --vm-memory 8GiB           # no worker has that much: see why
  bourse worker list
`, first)
	if proxy != "" {
		fmt.Fprintf(&b, "\nThe proxy serves apps, and starts their machines on demand: port 80 of app web is http://web.localhost%s/.\n\n",
			strings.TrimPrefix(proxy, "http://127.0.0.1"))
		b.WriteString("  bourse app create web\n")
		b.WriteString("  bourse machine run host --app web --port 80 -- sh -c 'exec python3 -m http.server $PORT'\n")
		fmt.Fprintf(&b, "  curl http://web.localhost%s/\n", strings.TrimPrefix(proxy, "http://127.0.0.1"))
		fmt.Fprintf(&b, "  curl -k https://web.localhost%s/   # with TLS and HTTP/2; the certificate is self-signed\n", strings.TrimPrefix(secure, "https://127.0.0.1"))
	}
	b.WriteString("\nCtrl-C stops everything and cleans up.\n")
	_, err = c.shell.Out.Write([]byte(c.shell.WithProgramName(b.String())))
	return err
}
