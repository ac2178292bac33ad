package host

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/fabric/nats"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/enroll"
	"github.com/bourse-dev/bourse/internal/seal"
	"github.com/bourse-dev/bourse/internal/wholefile"
	"github.com/bourse-dev/bourse/machinesapi"
)

// NewInit returns the "init" command.
func NewInit(s *cli.Shell) *cobra.Command {
	h := setup{shell: s}
	var cluster string
	var servers []string
	c := &cobra.Command{
		Use:   "init",
		Short: "Create a cluster, with this host as its first one",
		Long: `Create a cluster, with this host as its first one: its CA, keys and first token, the
configuration of this host's servers, and the servers themselves. Where systemd runs,
they become the service bourse. Elsewhere they run in the foreground.

It prints the command that makes another host part of the cluster. The commands on
this host use the new cluster from now on.

The CA's key, ca.key, is needed only to replace the issuer, which brokers use and
which is valid for a year. You can move it to a safe place.`,
		Example: `  bourse init
  bourse init --region gru --address 10.0.0.1
  bourse init --role broker,proxy
  bourse init --nats tls://nats.example.com:4222   # for hosts behind NAT`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return h.init(c.Context(), cluster, servers) },
	}
	h.bind(c, []string{"broker", "proxy", "worker"})
	c.Flags().StringVar(&cluster, "cluster", "", "`name` of the cluster (default: generated)")
	c.Flags().StringVarP(&h.region, "region", "r", "local", "`region` of this host")
	c.Flags().StringSliceVar(&servers, "nats", nil, "`URL` of NATS servers through which brokers and proxies reach hosts that accept no connections (nats://HOST:PORT, tls://…), separated by commas")
	return c
}

func (h *setup) init(ctx context.Context, cluster string, servers []string) error {
	if err := h.checkNoConfig(); err != nil {
		return err
	}
	if err := h.find(ctx); err != nil {
		return err
	}
	if err := bourse.Region(h.region).Validate(); err != nil {
		return cli.FlagError("--region", err)
	}
	if !slices.Contains(h.roles, string(bourse.RoleBroker)) {
		return bourse.Errorf(bourse.CodeInvalid, "the first host of a cluster needs a broker: add it to --role")
	}
	for _, server := range servers {
		if err := nats.ValidateURL(server); err != nil {
			return cli.FlagError("--nats", err)
		}
	}
	if err := h.portsFree(ctx); err != nil {
		return err
	}
	if cluster == "" {
		cluster = "bourse-" + strings.ToLower(rand.Text()[:6])
	}
	if err := h.makeDirs(); err != nil {
		return err
	}
	one, err := h.createCredentials(cluster)
	if err != nil {
		return err
	}
	if err := h.write(cluster, networks{address: h.address, nats: servers, mesh: meshFree(ctx)}); err != nil {
		return err
	}
	_, err = cli.UpdateContexts(h.shell.Getenv, func(all *cli.Contexts) error {
		all.ByName[cluster], all.Current = one, cluster
		return nil
	})
	if err != nil {
		return err
	}
	h.shell.UseAPI(one)
	h.printSettings()
	return h.start(ctx, func(ctx context.Context) error { return h.printNextSteps(ctx, cluster, len(servers) > 0) })
}

// createCredentials creates the files that all servers of the cluster share, and the
// certificates of this host's servers. It never overwrites a file.
func (h *setup) createCredentials(cluster string) (cli.Context, error) {
	now, dir := h.shell.Now(), h.dir()
	one := cli.Context{API: "https://" + net.JoinHostPort(h.address, "4280")}
	ca, err := admission.NewCA(cluster, now)
	if err != nil {
		return one, err
	}
	issuer, err := ca.NewIssuer(now)
	if err != nil {
		return one, err
	}
	token := random(16)
	one.CA, one.Token = string(ca.Pair().Cert), token
	files := []struct {
		path string
		data []byte
	}{
		{dir.CA(), ca.Pair().Cert},
		{dir.CAKey(), ca.Pair().Key},
		{dir.Issuer(), issuer.Pair().PEM()},
		{dir.GossipKey(), admission.NewGossipKey()},
		{dir.Tokens(), []byte(token + " *\n")},
		{dir.SecretsKey(), seal.Generate()},
	}
	for _, role := range h.roles {
		who := admission.Identity{ID: enroll.ServerName(bourse.WorkerID(h.name), bourse.Role(role)), Role: bourse.Role(role)}
		var hosts []string
		if who.Role == bourse.RoleBroker { // clients connect to a broker by its address
			hosts = []string{h.address}
		}
		pair, err := issuer.Issue(who, hosts, now)
		if err != nil {
			return one, err
		}
		files = append(files, struct {
			path string
			data []byte
		}{dir.Server(who.ID), pair.PEM()})
	}
	for _, f := range files {
		if _, err := os.Lstat(f.path); err == nil {
			return one, cli.Hint(bourse.Errorf(bourse.CodeAlreadyExists, "%s already exists: it may be the only copy of a cluster's keys", f.path),
				"--config with a path in another directory", "move the files of "+string(dir)+" away, if no cluster uses them")
		}
	}
	for _, f := range files {
		if err := wholefile.Write(f.path, f.data, 0o600); err != nil {
			return one, bourse.Errorf(bourse.CodeInvalid, "write the credentials: %w", err)
		}
	}
	return one, nil
}

// printNextSteps prints the next steps for the user. onNATS reports whether the cluster
// uses NATS.
func (h *setup) printNextSteps(ctx context.Context, cluster string, onNATS bool) error {
	token, err := h.shell.Client().JoinTokens().Create(ctx, machinesapi.CreateJoinToken{})
	if err != nil {
		return err
	}
	if h.shell.JSON {
		return h.shell.PrintJSON(token)
	}
	behind := ""
	if onNATS {
		behind = "\nIf other hosts cannot connect to it, add --nats.\n"
	}
	_, err = fmt.Fprintf(h.shell.Out, `
Cluster %s is ready. To add a host, run this command on it within an hour:

  bourse join %s
%s
For more hosts: bourse token join --uses 10 --ttl 24h
To look around: bourse worker list
`, cluster, token.Token, behind)
	return err
}

// random returns n random bytes as hexadecimal digits.
func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // crypto/rand never fails
	return hex.EncodeToString(b)
}
