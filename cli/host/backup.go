package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/view"
)

// NewBackup returns the "backup" command.
func NewBackup(s *cli.Shell) *cobra.Command {
	b := backup{shell: s}
	c := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write this host's keys and its copy of the cluster's data to a file",
		Long: `Write a tar archive that "bourse restore" uses to set up this host again after its
disk was lost. The servers may be running. The archive contains:

  - all files in the directory of the configuration: the configuration, certificates
    and keys, such as ca.key, issuer.pem, secrets.key and gossip.key, and the tokens
  - volume.key, the key for encrypted volumes
  - a copy of the view: the cluster's apps, releases, secrets and client tokens

It does not contain the contents of volumes, images, logs, the worker's machines (an
old copy could start machines again that were destroyed), or join tokens (an old copy
could make used ones valid again).

Whoever can read the archive can control the cluster. FILE is readable only by its
owner, and is either written completely or not at all. An existing file is not
replaced. With - as FILE, the archive is written to standard output.`,
		Example: `  bourse backup /media/usb/gru-1.tar
  bourse backup - | age -r age1... > gru-1.tar.age`,
		Args: cli.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error { return b.run(c.Context(), args[0]) },
	}
	c.Flags().StringVar(&b.config, "config", serve.DefaultFile, "`file` with the configuration of this host's servers")
	return c
}

// backup is one invocation of the "backup" command.
type backup struct {
	shell  *cli.Shell
	config string
	temp   string // directory for the copy of the view and the unfinished archive
}

func (b *backup) run(ctx context.Context, path string) (err error) {
	toOutput := path == "-"
	switch {
	case toOutput && b.shell.JSON:
		return bourse.Errorf(bourse.CodeInvalid, "--json: standard output receives the archive; use a file")
	case toOutput && b.shell.Out.TTY:
		return bourse.Errorf(bourse.CodeInvalid, "the archive is not written to a terminal: redirect the output, or use a file")
	}
	dir := os.TempDir()
	if !toOutput {
		if _, err := os.Lstat(path); err == nil {
			return exists(path)
		}
		dir = filepath.Dir(path)
	}
	if b.temp, err = os.MkdirTemp(dir, ".bourse-backup-*"); err != nil { // MkdirTemp uses mode 0700
		return cannotWrite(path, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.temp)) }()
	m, entries, err := b.collect(ctx)
	if err != nil {
		return err
	}
	if toOutput {
		if err := writeArchive(b.shell.Out, m, entries); err != nil {
			return cannotWrite("standard output", err)
		}
		return nil
	}
	if err := writeNew(path, filepath.Join(b.temp, "archive"), func(w io.Writer) error { return writeArchive(w, m, entries) }); err != nil {
		return err
	}
	if b.shell.JSON {
		return b.shell.PrintJSON(m)
	}
	_, err = fmt.Fprintf(b.shell.Out, "%s: backup of host %s of cluster %s, %s\n", path, m.Host, m.Cluster, cli.Count(len(m.Files), "file"))
	b.shell.Note("The file contains keys: store it where nobody else can read it.")
	return err
}

// collect reads the files to back up, and copies the view to the temporary directory.
func (b *backup) collect(ctx context.Context) (*manifest, []entry, error) {
	file, err := serve.ReadFile(b.config)
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return nil, nil, cli.Hint(err, "--config, if the configuration is elsewhere")
	}
	if err != nil {
		return nil, nil, err
	}
	servers, err := file.Servers()
	if err == nil && len(servers) == 0 {
		err = bourse.Errorf(bourse.CodeInvalid, "%s has no servers", b.config)
	}
	if err != nil {
		return nil, nil, cli.Hint(err, "bourse doctor")
	}
	config, err := filepath.Abs(b.config)
	if err != nil {
		return nil, nil, bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	m := &manifest{
		Format: archiveFormat, Cluster: servers[0].Cluster, Host: hostOf(servers), Release: b.shell.Version.Release,
		Time: b.shell.Now().UTC(), Config: config,
	}
	for i := range servers {
		s, err := savedOf(&servers[i], filepath.Dir(config))
		if err != nil {
			return nil, nil, err
		}
		m.Servers = append(m.Servers, s)
	}
	entries, err := b.configFiles(filepath.Dir(config))
	if err != nil {
		return nil, nil, err
	}
	more, err := b.dataFiles(ctx, m.Servers)
	if err != nil {
		return nil, nil, err
	}
	entries = append(entries, more...)
	for _, e := range entries {
		m.Files = append(m.Files, e.archived)
	}
	if err := m.validate(); err != nil {
		return nil, nil, err
	}
	return m, entries, nil
}

// hostOf returns the name of the host. The names of its brokers and proxies are derived from it.
func hostOf(servers []serve.Server) bourse.WorkerID {
	for _, s := range servers {
		if s.Role == bourse.RoleWorker {
			return s.Name
		}
	}
	s := servers[0]
	return bourse.WorkerID(strings.TrimSuffix(string(s.Name), "-"+string(s.Role)))
}

// savedOf returns the description of a server for the manifest. Errors: failed_precondition
// if the server's credentials are not in dir.
func savedOf(s *serve.Server, dir string) (saved, error) {
	out := saved{Role: s.Role, Name: s.Name, Region: s.Region}
	if s.Address.IsValid() {
		out.Address = s.Address.String()
	}
	if s.Listen.Port() != 0 {
		out.Listen = s.Listen.String()
	}
	if s.Gossip.Port() != 0 && !s.NATS.Set() {
		out.Gossip = s.Gossip.String()
	}
	var err error
	for _, p := range []struct {
		to   *string
		from string
	}{{&out.Data, s.Data}, {&out.View, s.View}} {
		if p.from != "" {
			if *p.to, err = filepath.Abs(p.from); err != nil {
				return out, bourse.Errorf(bourse.CodeInvalid, "%w", err)
			}
		}
	}
	if credentials := s.Credentials.Dir; credentials != "" {
		if abs, err := filepath.Abs(credentials); err != nil || abs != dir {
			return out, bourse.Errorf(bourse.CodeFailedPrecondition, "the credentials of %s are in %s, not next to the configuration in %s: back up both directories yourself", s.Name, credentials, dir)
		}
	}
	return out, nil
}

// configFiles reads the files in the directory of the configuration.
func (b *backup) configFiles(dir string) ([]entry, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	var entries []entry
	for _, e := range list {
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		switch {
		case strings.HasPrefix(e.Name(), "."): // a temporary file, for example an editor's
			continue
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, bourse.Errorf(bourse.CodeInvalid, "%w", err)
		case !info.Mode().IsRegular() || !fileName.MatchString(e.Name()):
			b.shell.Note("not part of the backup: " + cli.Clean(path))
			continue
		}
		one, err := readEntry(configPrefix+e.Name(), path)
		if err != nil {
			return nil, err
		}
		entries = append(entries, one)
	}
	return entries, nil
}

// dataFiles reads the key for encrypted volumes, and copies the view of one server. One
// copy suffices, because all servers have the same view.
func (b *backup) dataFiles(ctx context.Context, servers []saved) ([]entry, error) {
	var entries []entry
	copied := false
	for _, s := range servers {
		if s.Role == bourse.RoleWorker && s.Data != "" {
			one, err := readEntry(volumeKeyEntry, filepath.Join(s.Data, volumeKeyFile))
			if err == nil {
				entries = append(entries, one)
			} else if !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
		if _, err := os.Stat(s.View); copied || s.View == "" || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		one, err := b.copyView(ctx, &s)
		if err != nil {
			return nil, err
		}
		entries, copied = append(entries, one), true
	}
	return entries, nil
}

func (b *backup) copyView(ctx context.Context, s *saved) (entry, error) {
	path := filepath.Join(b.temp, "view")
	if err := view.Backup(ctx, s.View, path); err != nil {
		return entry{}, cli.Hint(err, "free space on the disk of the backup", "delete "+s.View+" if it is damaged: other members restore it; then back up again")
	}
	f, err := os.Open(path)
	if err != nil {
		return entry{}, bourse.Errorf(bourse.CodeUnavailable, "%w", err)
	}
	defer f.Close()
	size, sum, err := digest(f)
	if err != nil {
		return entry{}, bourse.Errorf(bourse.CodeUnavailable, "read the copy of the view: %w", err)
	}
	return entry{archived{Name: viewEntry(s.Role), Mode: 0o600, Size: size, SHA256: sum}, func() (io.ReadCloser, error) { return os.Open(path) }}, nil
}

// readEntry reads a file of at most maxSmall bytes.
func readEntry(name, path string) (entry, error) {
	f, err := os.Open(path)
	if err != nil {
		return entry{}, bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return entry{}, bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSmall+1))
	if err != nil {
		return entry{}, bourse.Errorf(bourse.CodeUnavailable, "read %s: %w", path, err)
	}
	if len(data) > maxSmall {
		return entry{}, bourse.Errorf(bourse.CodeFailedPrecondition, "%s has more than %d bytes: move it to another directory", path, maxSmall)
	}
	size, sum, err := digest(bytes.NewReader(data))
	return entry{archived{Name: name, Mode: info.Mode().Perm() & maxMode, Size: size, SHA256: sum}, func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	}}, err
}

// writeNew creates the file path, and returns an error if it already exists. It writes to temp,
// which is on the same file system, and moves the file to path once all data is on disk.
func writeNew(path, temp string, write func(io.Writer) error) error {
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return cannotWrite(path, err)
	}
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return cannotWrite(path, err)
	}
	switch err := os.Link(temp, path); { // a rename would replace a file
	case errors.Is(err, fs.ErrExist):
		return exists(path)
	case err != nil: // the file system does not support hard links
		if _, err := os.Lstat(path); err == nil {
			return exists(path)
		}
		if err := os.Rename(temp, path); err != nil {
			return cannotWrite(path, err)
		}
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return cannotWrite(path, err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return cannotWrite(path, err)
	}
	return nil
}

func exists(path string) error {
	return bourse.Errorf(bourse.CodeAlreadyExists, "%s already exists and is not replaced: choose another file", path)
}

// cannotWrite returns the error for a backup that could not be written. The caller removes
// the incomplete files.
func cannotWrite(path string, err error) error {
	if bourse.CodeOf(err) != bourse.CodeInternal { // the error already explains the failure
		return err
	}
	code := bourse.CodeUnavailable
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) {
		code = bourse.CodeInvalid
	}
	return bourse.Errorf(code, "the backup was not written to %s: %w", path, err)
}
