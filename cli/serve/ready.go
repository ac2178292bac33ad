package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/bourse-dev/bourse"
)

// Ready is a server's report that it is ready. The server prints it as one line of JSON
// on standard output, and writes it to its --ready-file.
type Ready struct {
	ID     string        `json:"id"`
	Role   bourse.Role   `json:"role"`
	Region bourse.Region `json:"region,omitempty"`
	API    string        `json:"api"`            // host:port
	Gossip string        `json:"gossip"`         // host:port
	Pull   string        `json:"pull,omitempty"` // host:port of a worker's gateway
	HTTP   []string      `json:"http,omitempty"` // host:port at which a proxy serves HTTP; likewise for HTTPS and TCP
	HTTPS  []string      `json:"https,omitempty"`
	TCP    []string      `json:"tcp,omitempty"`
	PID    int           `json:"pid"`

	Members int `json:"members,omitzero"` // number of known members of the cluster, including this server; 1 means that it has not joined yet

	TokenFile string `json:"token_file,omitempty"` // file with the token that the broker or gateway has created for its clients
}

// Announce reports that the server is ready: on w, in the ready file if one is
// configured, and to systemd if it requests notification. The file is written
// atomically, and withdraw removes it.
func (c *ServerConfig) Announce(w io.Writer, r Ready) (withdraw func(), err error) {
	withdraw = func() {}
	line, err := json.Marshal(r)
	if err != nil {
		return withdraw, err
	}
	line = append(line, '\n')
	if c.ReadyFile != "" {
		if err := writeWhole(c.ReadyFile, line); err != nil {
			return withdraw, bourse.Errorf(bourse.CodeInvalid, "--ready-file: %w", err)
		}
		withdraw = func() { _ = os.Remove(c.ReadyFile) } // the file may have been removed already
	}
	// Ignore the error, because the server must not exit if standard output is closed.
	_, _ = w.Write(line)
	if err := notifySystemd(); err != nil {
		withdraw()
		return func() {}, err
	}
	return withdraw, nil
}

// writeWhole replaces a file atomically. It does not sync the file, because its contents
// are meaningless after the host crashes.
func writeWhole(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
	}
	return nil
}
