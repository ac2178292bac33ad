package host

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/enroll"
	"github.com/bourse-dev/bourse/internal/wholefile"
)

// NewJoin returns the "join" command.
func NewJoin(s *cli.Shell) *cobra.Command {
	h := setup{shell: s}
	var overNATS bool
	c := &cobra.Command{
		Use:   "join TOKEN",
		Short: "Make this host part of a cluster",
		Long: `Make this host part of a cluster, with a token from "bourse token join" or "bourse
init". It creates the servers' keys, receives their certificates from a broker,
writes the configuration, and starts the servers. Where systemd runs, they become the
service bourse. Elsewhere they run in the foreground.

The token names the broker and its CA, so nothing needs to be copied to the host. If
the command was interrupted, repeat it: that does not use the token again.`,
		Example: `  bourse join bourse-join-eyJhIjpbIjEw...
  bourse join bourse-join-eyJhIjpbIjEw... --region gru --name gru-7
  bourse join bourse-join-eyJhIjpbIjEw... --nats   # behind NAT: no port is open here`,
		Args: cli.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error { return h.join(c.Context(), args[0], overNATS) },
	}
	h.bind(c, []string{"worker"})
	c.Flags().StringVarP(&h.region, "region", "r", "", "`region` of this host (default: that of the token, or the broker's)")
	c.Flags().BoolVar(&overNATS, "nats", false, "reach the cluster through its NATS servers, without listening on this host")
	return c
}

func (h *setup) join(ctx context.Context, token string, overNATS bool) error {
	invitation, err := enroll.Parse(token)
	if err != nil {
		return err
	}
	if err := h.checkNoConfig(); err != nil {
		return err
	}
	if err := h.find(ctx); err != nil {
		return err
	}
	if !overNATS {
		if err := h.portsFree(ctx); err != nil {
			return err
		}
	}
	if err := h.makeDirs(); err != nil {
		return err
	}
	r := enroll.Request{Host: bourse.WorkerID(h.name), Region: bourse.Region(h.region), Address: h.address}
	keys := map[bourse.Role][]byte{}
	for _, role := range h.roles {
		role := bourse.Role(role)
		key, private, err := pendingKey(h.dir().Server(enroll.ServerName(r.Host, role)))
		if err != nil {
			return err
		}
		request, err := enroll.NewRequest(key)
		if err != nil {
			return err
		}
		keys[role], r.Servers = private, append(r.Servers, enroll.Server{Role: role, Request: request})
	}
	reply, err := enroll.Join(ctx, &invitation, r)
	if err != nil {
		return explain(err)
	}
	h.region = string(reply.Region)
	if err := h.store(reply, keys); err != nil {
		return err
	}
	to := networks{nats: reply.NATS, mesh: meshFree(ctx)}
	if !overNATS && len(reply.Join) > 0 {
		to.address, to.join = h.address, reply.Join
	} else if len(to.nats) == 0 {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "the cluster's brokers are not connected to NATS: leave out --nats")
	}
	if err := h.write(reply.Cluster, to); err != nil {
		return err
	}
	h.printSettings()
	return h.start(ctx, func(context.Context) error {
		_, err := fmt.Fprintf(h.shell.Out, "\n%s is part of cluster %s. On the first host: bourse worker list\n", h.name, cli.Clean(reply.Cluster))
		return err
	})
}

// explain adds hints to an error from a broker.
func explain(err error) error {
	switch bourse.CodeOf(err) { //nolint:exhaustive // others explain themselves
	case bourse.CodeUnauthorized, bourse.CodeForbidden:
		return cli.Hint(err, "bourse token join, on a host of the cluster, for another token")
	case bourse.CodeAlreadyExists:
		return cli.Hint(err, "--name")
	case bourse.CodeUnavailable:
		return cli.Hint(err, "check that this host reaches the broker's port")
	}
	return err
}

// pendingKey returns the key of a server that is about to join. A new key is stored
// before it is used, so that an interrupted join can be repeated.
func pendingKey(path string) (*ecdsa.PrivateKey, []byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key, private, err := admission.NewKey()
		if err == nil {
			if err = wholefile.Write(path, private, 0o600); err != nil {
				err = bourse.Errorf(bourse.CodeInvalid, "store the key: %w", err)
			}
		}
		return key, private, err
	}
	if err != nil {
		return nil, nil, bourse.Errorf(bourse.CodeInvalid, "read the key: %w", err)
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "PRIVATE KEY" {
			continue
		}
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if private, ok := key.(*ecdsa.PrivateKey); ok && err == nil {
			return private, pem.EncodeToMemory(block), nil
		}
	}
	return nil, nil, bourse.Errorf(bourse.CodeInvalid, "%s contains no key: remove it", path)
}

// store writes the credentials that the broker sent.
func (h *setup) store(reply *enroll.Reply, keys map[bourse.Role][]byte) error {
	dir := h.dir()
	files := map[string][]byte{dir.CA(): reply.CA, dir.GossipKey(): reply.GossipKey, dir.Tokens(): reply.Tokens, dir.SecretsKey(): reply.SecretsKey}
	for role, key := range keys {
		pair := slices.Concat(reply.Certificates[role], key)
		if _, err := admission.NewCredentials(reply.CA, admission.Pair{Cert: pair, Key: pair}); err != nil {
			return bourse.Errorf(bourse.CodeInternal, "the broker sent a certificate that cannot be used: %w", err)
		}
		files[dir.Server(enroll.ServerName(bourse.WorkerID(h.name), role))] = pair
	}
	for path, data := range files {
		if len(data) == 0 {
			continue
		}
		if err := wholefile.Write(path, data, 0o600); err != nil {
			return bourse.Errorf(bourse.CodeInvalid, "write the credentials: %w", err)
		}
	}
	return nil
}
