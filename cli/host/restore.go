package host

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/enroll"
	"github.com/bourse-dev/bourse/internal/wholefile"
	"github.com/bourse-dev/bourse/view"
)

// NewRestore returns the "restore" command.
func NewRestore(s *cli.Shell) *cobra.Command {
	r := restore{setup: setup{shell: s}}
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "Set up this host again from a backup, and start its servers",
		Long: `Set up this host again from a file that "bourse backup" has written: its
configuration, keys and certificates, and its copy of the view. Then start the
servers. Where systemd runs, they become the service bourse. Elsewhere they run in the
foreground. This host must have the name and the address of the host in the backup,
which must no longer run.

The whole file is verified before anything is written. Existing files are never
overwritten. In particular, a worker's store, volumes and running machines stay as
they are. If the worker's store was lost, the worker starts without machines: they
are not restored, because an old copy could start machines again that were
destroyed.

Other members of the cluster send what has changed since the backup. If no other
server is left, use --whole-cluster. The apps, secrets and client tokens are then
those of the backup: revoke again what was revoked since.

Restore only backups that you trust: the configuration determines which programs
run.`,
		Example: `  bourse restore /media/usb/gru-1.tar
  bourse restore gru-1.tar --name gru-1       # on a host with another host name
  bourse restore gru-1.tar --whole-cluster    # every server of the cluster is lost`,
		Args: cli.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error { return r.run(c.Context(), args[0]) },
	}
	flags := c.Flags()
	flags.StringVar(&r.config, "config", serve.DefaultFile, "`file` to write the configuration to; must be the path in the backup")
	flags.StringVarP(&r.name, "name", "n", "", "`name` of the host in the backup (default: this host's name)")
	flags.BoolVar(&r.whole, "whole-cluster", false, "use the backup's copy of the view however old it is, because no other server of the cluster is left")
	flags.BoolVar(&r.here, "foreground", false, "run the servers in the foreground, even where systemd runs")
	return c
}

// restore is one invocation of the "restore" command.
type restore struct {
	setup
	whole    bool
	manifest *manifest
	contents map[string][]byte // contents of the files to restore, except the view, by their names in the archive
	renewed  map[string]bool   // names of the certificates that an earlier attempt has renewed
}

func (r *restore) run(ctx context.Context, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return bourse.Errorf(codeOfOpen(err), "%w", err)
	}
	defer f.Close()
	if err := r.check(f); err != nil {
		return err
	}
	if err := r.addressesFree(ctx); err != nil {
		return err
	}
	if err := r.write(ctx, f); err != nil {
		return err
	}
	if err := r.logIn(); err != nil {
		return err
	}
	r.printSettings()
	return r.start(ctx, func(context.Context) error {
		_, err := fmt.Fprintf(r.shell.Out, "\n%s is part of cluster %s again, with the backup of %s.\n",
			r.manifest.Host, cli.Clean(r.manifest.Cluster), cli.Since(r.manifest.Time, r.shell.Now()))
		return err
	})
}

// check verifies the archive, and checks that it can be restored on this host. It does not write anything.
func (r *restore) check(f io.Reader) error {
	if err := r.read(f); err != nil {
		return err
	}
	if err := r.matches(); err != nil {
		return err
	}
	if _, err := os.Lstat(r.config); !errors.Is(err, fs.ErrNotExist) {
		return cli.Hint(bourse.Errorf(bourse.CodeAlreadyExists, "this host already has a configuration: %s exists", r.config),
			"bourse serve, to run its servers", "move "+r.config+" away, to restore the one in the backup")
	}
	renewed, err := r.certificates()
	if err != nil {
		return err
	}
	if err := r.checkOverwrites(); err != nil {
		return err
	}
	for name, pair := range renewed {
		if !r.renewed[name] {
			r.contents[name] = pair
		}
	}
	return nil
}

func codeOfOpen(err error) bourse.Code {
	if errors.Is(err, fs.ErrNotExist) {
		return bourse.CodeNotFound
	}
	return bourse.CodeInvalid
}

// read verifies the archive and reads all files except the view.
func (r *restore) read(f io.Reader) (err error) {
	r.contents, r.renewed = map[string][]byte{}, map[string]bool{}
	r.manifest, err = readArchive(f, func(_ *manifest, file *archived, content io.Reader) error {
		if isView(file) {
			return nil
		}
		data, err := io.ReadAll(content)
		r.contents[file.Name] = data
		return err
	})
	return err
}

func isView(f *archived) bool { return strings.HasSuffix(f.Name, "/view.db") }

// matches checks that this is a backup of this host, and reads the host's settings from it.
func (r *restore) matches() error {
	m := r.manifest
	if r.name == "" {
		name, err := os.Hostname()
		if err != nil {
			return bourse.Errorf(bourse.CodeInvalid, "find the host name: %w; use --name", err)
		}
		r.name, _, _ = strings.Cut(strings.ToLower(name), ".")
	}
	if r.name != string(m.Host) {
		return cli.Hint(bourse.Errorf(bourse.CodeFailedPrecondition, "this is a backup of host %s, and this host is called %s: two hosts with the same name would conflict", m.Host, bourse.Quoted(r.name)),
			fmt.Sprintf("--name %s, if this host replaces %s", m.Host, m.Host), "bourse join TOKEN, to add a host")
	}
	config, err := filepath.Abs(r.config)
	if err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	if config != m.Config {
		return cli.Hint(bourse.Errorf(bourse.CodeInvalid, "the configuration in the backup belongs to %s", m.Config), "--config "+m.Config)
	}
	r.config = config
	for _, s := range m.Servers {
		r.roles = append(r.roles, string(s.Role))
		r.address, r.region = cmp.Or(r.address, s.Address), cmp.Or(r.region, string(s.Region))
		r.data = cmp.Or(r.data, s.Data)
	}
	return nil
}

// certificates returns new certificates for the servers whose certificates have expired or
// will expire soon. Errors: failed_precondition if the backup has no issuer to sign them.
func (r *restore) certificates() (map[string][]byte, error) {
	out, now := map[string][]byte{}, r.shell.Now()
	for _, s := range r.manifest.Servers {
		name := configPrefix + string(s.Name) + ".pem"
		pair, ok := r.contents[name]
		if !ok {
			continue // a server without certificates
		}
		block, _ := pem.Decode(pair)
		if block == nil {
			return nil, notBackup("%s contains no certificate", name)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, notBackup("%s: %w", name, err)
		}
		if now.Add(minCertTime).Before(cert.NotAfter) {
			continue
		}
		if out[name], err = r.reissue(cert, now); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// minCertTime is the minimum remaining validity of a restored certificate. The server needs that much time to renew the
// certificate.
const minCertTime = 24 * time.Hour

// reissue creates a key and a certificate for the server that an old certificate
// identifies.
func (r *restore) reissue(old *x509.Certificate, now time.Time) ([]byte, error) {
	who, err := admission.IdentityOf(old)
	if err != nil {
		return nil, notBackup("the certificate of %s: %w", old.Subject.CommonName, err)
	}
	data, ok := r.contents[configPrefix+filepath.Base(r.dir().Issuer())]
	if !ok {
		return nil, cli.Hint(bourse.Errorf(bourse.CodeFailedPrecondition, "the certificate of %s is valid until %s, and the backup contains no issuer that could sign another one", who.ID, old.NotAfter.UTC().Format(time.RFC3339)),
			"bourse member remove "+string(who.ID)+", on a host of the cluster, then bourse join here")
	}
	issuer, err := admission.ParseCA(admission.Pair{Cert: data, Key: data})
	if err == nil && !now.Before(issuer.Expires()) {
		err = bourse.Errorf(bourse.CodeFailedPrecondition, "the issuer in the backup was valid until %s", issuer.Expires().UTC().Format(time.RFC3339))
	}
	if err != nil {
		return nil, cli.Hint(err, "bourse credentials issuer, where ca.key is, and bourse join")
	}
	return enroll.Reissue(issuer, old, now)
}

// target returns the path to which a file from the archive is restored.
func (r *restore) target(f *archived) string {
	if name, ok := strings.CutPrefix(f.Name, configPrefix); ok {
		return filepath.Join(string(r.dir()), name)
	}
	role, _, _ := strings.Cut(f.Name, "/")
	for _, s := range r.manifest.Servers {
		switch {
		case string(s.Role) != role:
		case f.Name == volumeKeyEntry && s.Data != "":
			return filepath.Join(s.Data, volumeKeyFile)
		case isView(f):
			return s.View
		}
	}
	return ""
}

// checkOverwrites returns an error if the restore would overwrite a file. Files with the same contents, and
// certificates that an earlier attempt renewed, are allowed, so that an interrupted restore can be repeated. An
// existing view is also allowed, and is not replaced, because it is newer than the view in the backup.
func (r *restore) checkOverwrites() error {
	for i := range r.manifest.Files {
		f := &r.manifest.Files[i]
		path := r.target(f)
		switch {
		case path == "":
			return notBackup("none of the backup's servers uses file %s", f.Name)
		case isView(f):
			continue
		}
		there, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return bourse.Errorf(bourse.CodeInvalid, "%w", err)
		case bytes.Equal(there, r.contents[f.Name]):
		case r.serves(f.Name, there): // an earlier attempt has renewed the certificate
			r.contents[f.Name], r.renewed[f.Name] = there, true
		default:
			return cli.Hint(bourse.Errorf(bourse.CodeAlreadyExists, "%s already exists, and its contents differ from the backup", path),
				"move it away, if no server uses it")
		}
	}
	return nil
}

// serves reports whether pair is a valid certificate and key for the server whose certificate the archive contains
// under this name.
func (r *restore) serves(name string, pair []byte) bool {
	for _, s := range r.manifest.Servers {
		if name == configPrefix+string(s.Name)+".pem" {
			creds, err := admission.NewCredentials(r.contents[configPrefix+filepath.Base(r.dir().CA())], admission.Pair{Cert: pair, Key: pair})
			return err == nil && creds.Self() == admission.Identity{ID: s.Name, Role: s.Role}
		}
	}
	return false
}

// addressesFree returns an error if a server is running, or if this host does not have the addresses in the backup.
func (r *restore) addressesFree(ctx context.Context) error {
	for _, s := range r.manifest.Servers {
		for _, l := range []struct{ network, at string }{{"tcp", s.Listen}, {"tcp", s.Gossip}, {"udp", s.Gossip}} {
			if l.at == "" {
				continue
			}
			at, err := netip.ParseAddrPort(l.at)
			if err != nil {
				return bourse.Errorf(bourse.CodeInvalid, "%w", err)
			}
			if err := canListen(ctx, l.network, at.String(), s.Role); bourse.CodeOf(err) == bourse.CodeConflict {
				return cli.Hint(bourse.Errorf(bourse.CodeConflict, "the %s cannot listen at %s, where another program listens: are this host's servers running?", s.Role, at), "systemctl stop bourse")
			} else if err != nil {
				return cli.Hint(bourse.Errorf(bourse.CodeFailedPrecondition, "the %s cannot listen at %s, its address in the backup: %w", s.Role, at, errors.Unwrap(err)),
					"give this host the address "+at.Addr().String(), "bourse join TOKEN, for a worker or proxy with another address")
			}
		}
	}
	return nil
}

// write writes all files. It writes the configuration last, because no server starts without it. An interrupted restore
// can therefore be repeated.
func (r *restore) write(ctx context.Context, archive io.ReadSeeker) error {
	dirs := []string{string(r.dir())}
	for _, s := range r.manifest.Servers {
		for _, dir := range []string{s.Data, filepath.Dir(s.View)} {
			if dir != "" && filepath.IsAbs(dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return cli.Hint(bourse.Errorf(bourse.CodeInvalid, "%w", err), asRoot)
		}
	}
	if err := r.writeView(ctx, archive); err != nil {
		return err
	}
	last := configPrefix + filepath.Base(r.config)
	files := slices.DeleteFunc(slices.Clone(r.manifest.Files), func(f archived) bool { return isView(&f) })
	slices.SortStableFunc(files, func(a, b archived) int {
		switch last {
		case a.Name:
			return 1
		case b.Name:
			return -1
		}
		return 0
	})
	for _, f := range files {
		if err := wholefile.Write(r.target(&f), r.contents[f.Name], f.Mode); err != nil {
			return bourse.Errorf(bourse.CodeUnavailable, "write %s: %w; repeat the command", r.target(&f), err)
		}
	}
	return nil
}

// writeView restores the view, unless it exists.
func (r *restore) writeView(ctx context.Context, archive io.ReadSeeker) error {
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "read the backup again: %w", err)
	}
	var temp, path string
	defer func() { _ = os.Remove(temp) }() // fails if the file has been renamed
	verified, err := readArchive(archive, func(_ *manifest, f *archived, content io.Reader) error {
		if !isView(f) {
			return nil
		}
		if path = r.target(f); path == "" {
			return nil
		}
		if _, err := os.Lstat(path); err == nil {
			path = ""
			return nil
		}
		temp = path + ".restored"
		return writeSynced(temp, content)
	})
	if err == nil && !verified.Time.Equal(r.manifest.Time) {
		err = bourse.Errorf(bourse.CodeConflict, "the backup has changed while it was read")
	}
	if err == nil && r.whole && path != "" {
		err = view.AllowOldCopy(ctx, temp, r.shell.Now())
	}
	if err != nil || path == "" {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "write the view: %w", err)
	}
	return nil
}

func writeSynced(path string, content io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = io.Copy(f, content)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "write the view: %w; repeat the command", err)
	}
	return nil
}

// logIn adds the cluster to the user's contexts and selects it. It does nothing if this
// host has no broker, or if the token file contains no token that permits everything.
func (r *restore) logIn() error {
	at := slices.IndexFunc(r.manifest.Servers, func(s saved) bool { return s.Role == bourse.RoleBroker })
	if at < 0 {
		return nil
	}
	listen, err := netip.ParseAddrPort(r.manifest.Servers[at].Listen)
	if err != nil {
		return nil // the broker has no fixed address
	}
	for line := range strings.Lines(string(r.contents[configPrefix+filepath.Base(r.dir().Tokens())])) {
		words := strings.Fields(line)
		if len(words) != 2 || words[1] != "*" {
			continue
		}
		one := cli.Context{
			API: "https://" + net.JoinHostPort(listen.Addr().String(), fmt.Sprint(listen.Port())),
			CA:  string(r.contents[configPrefix+filepath.Base(r.dir().CA())]), Token: words[0],
		}
		_, err := cli.UpdateContexts(r.shell.Getenv, func(all *cli.Contexts) error {
			all.ByName[r.manifest.Cluster], all.Current = one, r.manifest.Cluster
			return nil
		})
		return err
	}
	return nil
}
