package host

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// archiveFormat is the version of the backup format.
const archiveFormat = 1

// Names of the entries in an archive. The first entry is the manifest, which lists the others in order.
const (
	manifestEntry  = "manifest.json"
	configPrefix   = "config/" // followed by the name of a file in the directory of the configuration
	volumeKeyEntry = "worker/volume.key"
	volumeKeyFile  = "volume.key"
)

// viewEntry returns the name of the archive entry that contains a server's view.
func viewEntry(role bourse.Role) string { return string(role) + "/view.db" }

// Limits of an archive.
const (
	maxSmall = 1 << 20   // size in bytes of each file except the view
	maxView  = 8<<30 - 1 // size of the view in bytes; the maximum in a plain tar header
	maxFiles = 1000      // number of files
	maxMode  = 0o755     // permission bits that a file may have
)

// fileName matches the names of files that can be backed up.
var fileName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@+~-]{0,79}$`)

// manifest describes a backup.
type manifest struct {
	Format  int             `json:"format"`
	Cluster string          `json:"cluster"`
	Host    bourse.WorkerID `json:"host"`
	Release string          `json:"release,omitempty"` // release of the program that wrote the backup; "" for a build without a release
	Time    time.Time       `json:"time"`
	Config  string          `json:"config"` // path of the configuration
	Servers []saved         `json:"servers"`
	Files   []archived      `json:"files"`
}

// saved describes a server in a manifest.
type saved struct {
	Role    bourse.Role     `json:"role"`
	Name    bourse.WorkerID `json:"name"`
	Region  bourse.Region   `json:"region,omitempty"`
	Address string          `json:"address,omitempty"` // address of the host
	Listen  string          `json:"listen,omitempty"`  // API address
	Gossip  string          `json:"gossip,omitempty"`  // membership address
	Data    string          `json:"data,omitempty"`    // path of the server's data directory
	View    string          `json:"view,omitempty"`    // path of the server's view
}

// archived describes a file in a manifest.
type archived struct {
	Name   string      `json:"name"`
	Mode   fs.FileMode `json:"mode"`
	Size   int64       `json:"size"`
	SHA256 string      `json:"sha256"`
}

// entry is a file to write to an archive.
type entry struct {
	archived
	open func() (io.ReadCloser, error)
}

// validate checks everything in a manifest that restore depends on. Errors: invalid.
func (m *manifest) validate() error {
	switch {
	case m.Format != archiveFormat:
		return bourse.Errorf(bourse.CodeInvalid, "the backup has format %d, but this program supports only format %d: use the release that wrote it", m.Format, archiveFormat)
	case m.Host.Validate() != nil:
		return bourse.Errorf(bourse.CodeInvalid, "the host's name %s is invalid", bourse.Quoted(string(m.Host)))
	case !cleanPath(m.Config):
		return bourse.Errorf(bourse.CodeInvalid, "the configuration's path %s is invalid", bourse.Quoted(m.Config))
	case len(m.Files) > maxFiles:
		return bourse.Errorf(bourse.CodeInvalid, "it contains %d files, but the limit is %d", len(m.Files), maxFiles)
	}
	roles := map[bourse.Role]bool{}
	for _, s := range m.Servers {
		if !slices.Contains(bourse.ServerRoles(), s.Role) || roles[s.Role] {
			return bourse.Errorf(bourse.CodeInvalid, "the role %s is unknown, or occurs twice", bourse.Quoted(string(s.Role)))
		}
		roles[s.Role] = true
		if err := s.validate(); err != nil {
			return err
		}
	}
	if len(roles) == 0 {
		return bourse.Errorf(bourse.CodeInvalid, "it lists no servers")
	}
	names := map[string]bool{}
	for _, f := range m.Files {
		if names[f.Name] {
			return bourse.Errorf(bourse.CodeInvalid, "file %s occurs twice", bourse.Quoted(f.Name))
		}
		names[f.Name] = true
		if err := f.validate(roles); err != nil {
			return err
		}
	}
	if name := configPrefix + filepath.Base(m.Config); !names[name] {
		return bourse.Errorf(bourse.CodeInvalid, "the configuration %s is missing", name)
	}
	return nil
}

func (s *saved) validate() error {
	if err := s.Name.Validate(); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "the %s's name %s is invalid", s.Role, bourse.Quoted(string(s.Name)))
	}
	for _, path := range []string{s.Data, s.View} {
		if path != "" && !cleanPath(path) {
			return bourse.Errorf(bourse.CodeInvalid, "the path %s of the %s is invalid", bourse.Quoted(path), s.Role)
		}
	}
	for _, at := range []string{s.Listen, s.Gossip} {
		if _, err := netip.ParseAddrPort(at); at != "" && err != nil {
			return bourse.Errorf(bourse.CodeInvalid, "the address %s of the %s is invalid", bourse.Quoted(at), s.Role)
		}
	}
	if _, err := netip.ParseAddr(s.Address); s.Address != "" && err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "the address %s of the %s is invalid", bourse.Quoted(s.Address), s.Role)
	}
	return nil
}

// cleanPath reports whether a path is absolute and has no unnecessary elements.
func cleanPath(path string) bool {
	return filepath.IsAbs(path) && filepath.Clean(path) == path && !strings.ContainsRune(path, 0)
}

func (f *archived) validate(roles map[bourse.Role]bool) error {
	limit := int64(maxSmall)
	role, isView := strings.CutSuffix(f.Name, "/view.db")
	name, isConfig := strings.CutPrefix(f.Name, configPrefix)
	switch {
	case isConfig && fileName.MatchString(name):
	case f.Name == volumeKeyEntry && roles[bourse.RoleWorker]:
	case isView && roles[bourse.Role(role)]:
		limit = maxView
	default:
		return bourse.Errorf(bourse.CodeInvalid, "unexpected file %s in the backup", bourse.Quoted(f.Name))
	}
	if f.Size < 0 || f.Size > limit {
		return bourse.Errorf(bourse.CodeInvalid, "file %s has %d bytes, but the limit is %d", f.Name, f.Size, limit)
	}
	if f.Mode&^maxMode != 0 {
		return bourse.Errorf(bourse.CodeInvalid, "file %s has mode %o", f.Name, f.Mode)
	}
	if sum, err := hex.DecodeString(f.SHA256); err != nil || len(sum) != sha256.Size {
		return bourse.Errorf(bourse.CodeInvalid, "file %s has no SHA-256", f.Name)
	}
	return nil
}

// writeArchive writes a backup.
func writeArchive(w io.Writer, m *manifest, entries []entry) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return bourse.Errorf(bourse.CodeInternal, "encode the manifest: %w", err)
	}
	text = append(text, '\n')
	first := entry{archived{Name: manifestEntry, Mode: 0o600, Size: int64(len(text))}, func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(text)), nil
	}}
	out := tar.NewWriter(w)
	for _, e := range append([]entry{first}, entries...) {
		err := out.WriteHeader(&tar.Header{
			Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Name: e.Name, Mode: int64(e.Mode), Size: e.Size, ModTime: m.Time,
		})
		if err != nil {
			return err
		}
		r, err := e.open()
		if err != nil {
			return err
		}
		if _, err := io.Copy(out, r); err != nil {
			return errors.Join(err, r.Close())
		}
		if err := r.Close(); err != nil {
			return err
		}
	}
	return out.Close()
}

// readArchive reads and verifies a backup. It calls take for each file; take need not read the file to its end. The
// contents are verified only once readArchive returns nil. Errors: invalid if the backup is incomplete or damaged, and
// take's errors.
func readArchive(r io.Reader, take func(m *manifest, f *archived, r io.Reader) error) (*manifest, error) {
	in := tar.NewReader(r)
	text, err := readManifest(in)
	if err != nil {
		return nil, notBackup("%w", err)
	}
	m := &manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, notBackup("the manifest: %w", err)
	}
	if err := m.validate(); err != nil {
		return nil, notBackup("%w", err)
	}
	for i := range m.Files {
		f := &m.Files[i]
		header, err := nextFile(in)
		if err != nil {
			return nil, notBackup("file %s: %w", f.Name, err)
		}
		if header.Name != f.Name || header.Size != f.Size {
			return nil, notBackup("the next file is %s with %d bytes, but the manifest lists %s with %d", bourse.Quoted(header.Name), header.Size, f.Name, f.Size)
		}
		sum := sha256.New()
		content := io.TeeReader(in, sum)
		if err := take(m, f, content); bourse.CodeOf(err) == bourse.CodeInternal { // an error without a code comes from reading the content
			return nil, notBackup("file %s: %w", f.Name, incomplete(err))
		} else if err != nil {
			return nil, err
		}
		if _, err := io.Copy(io.Discard, content); err != nil {
			return nil, notBackup("file %s: %w", f.Name, incomplete(err))
		}
		if hex.EncodeToString(sum.Sum(nil)) != strings.ToLower(f.SHA256) {
			return nil, notBackup("file %s is damaged: its checksum is wrong", f.Name)
		}
	}
	if _, err := in.Next(); err == nil {
		return nil, notBackup("there are more files than the manifest lists")
	} else if !errors.Is(err, io.EOF) {
		return nil, notBackup("%w", incomplete(err))
	}
	return m, nil
}

func readManifest(in *tar.Reader) ([]byte, error) {
	header, err := nextFile(in)
	if err != nil {
		return nil, err
	}
	if header.Name != manifestEntry || header.Size > maxSmall {
		return nil, fmt.Errorf("it must begin with a manifest of at most %d bytes, but begins with %s (%d bytes)", maxSmall, bourse.Quoted(header.Name), header.Size)
	}
	text, err := io.ReadAll(in)
	return text, incomplete(err)
}

// nextFile returns the header of the next file. It accepts only plain headers, because other kinds can describe links,
// devices, and files that are larger than the archive.
func nextFile(in *tar.Reader) (*tar.Header, error) {
	header, err := in.Next()
	if err != nil {
		return nil, incomplete(err)
	}
	if header.Typeflag != tar.TypeReg || header.Format != tar.FormatUSTAR || len(header.PAXRecords) > 0 {
		return nil, fmt.Errorf("%s is not a plain file", bourse.Quoted(header.Name))
	}
	return header, nil
}

// incomplete replaces EOF errors, which mean that the archive is truncated. It returns other errors unchanged.
func incomplete(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the archive is incomplete")
	}
	return err
}

func notBackup(format string, args ...any) error {
	return bourse.Errorf(bourse.CodeInvalid, "not an intact backup: "+format, args...)
}

// digest reads everything, and returns its size and SHA-256.
func digest(r io.Reader) (int64, string, error) {
	sum := sha256.New()
	n, err := io.Copy(sum, r)
	return n, hex.EncodeToString(sum.Sum(nil)), err
}
