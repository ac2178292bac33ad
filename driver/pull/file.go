package pull

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// For each machine with a claimed job, the directory contains the file jobs/<machine>.json until
// the machine is destroyed. The file contains one record. It is replaced atomically: a new file is
// written, synced and renamed, and the directory is synced. After a crash, the file therefore
// contains either the old record or the new one.
const (
	jobsDir       = "jobs"
	suffix        = ".json"
	tempSuffix    = ".tmp"
	maxRecord     = 8 << 20 // maximum size of a file in bytes
	recordVersion = 1       // version of the file format
)

// The stages of a write at which tests kill the daemon. At each stage, the file contains either
// the old record or the new one.
const (
	stageWritten = "written" // the record was written to the new file
	stageRenamed = "renamed"
	stageSynced  = "synced" // the record is durable, but the write has not been reported yet
)

// MaxOutput is the maximum size in bytes of a job's stored output. If the output is longer, only
// its end is stored.
const MaxOutput = 1 << 20

// record contains the durable data of a job.
type record struct {
	Form      int           `json:"form"`
	ID        driver.TaskID `json:"id"`
	Name      string        `json:"name"`
	By        string        `json:"by"`
	Host      string        `json:"host,omitempty"`
	Ticket    []byte        `json:"ticket"` // hash of the job's ticket
	Size      Size          `json:"size"`
	StartedAt time.Time     `json:"started_at"`
	Exit      *bourse.Exit  `json:"exit,omitempty"`
	GivenUp   bool          `json:"given_up,omitempty"` // the driver has given up the job and refuses reports about it
	Output    []byte        `json:"output,omitempty"`
}

// decodeRecord decodes the contents of a job's file.
func decodeRecord(text []byte) (record, error) {
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return r, err
	}
	if r.Form != recordVersion {
		return r, bourse.Errorf(bourse.CodeInvalid, "unknown format %d", r.Form)
	}
	if r.ID.Boot < 1 {
		return r, bourse.Errorf(bourse.CodeInvalid, "invalid boot %d", r.ID.Boot)
	}
	return r, errors.Join(r.ID.Machine.Validate(), bourse.ValidateMachineName(r.Name))
}

// write stores r durably in the machine's file.
func (d *Driver) write(r record) error {
	r.Form = recordVersion
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	name := string(r.ID.Machine) + suffix
	f, err := d.root.OpenFile(name+tempSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close(), d.fault(stageWritten)); err != nil {
		return err
	}
	if err := errors.Join(d.root.Rename(name+tempSuffix, name), d.fault(stageRenamed)); err != nil {
		return err
	}
	return errors.Join(d.syncDir(), d.fault(stageSynced))
}

// erase removes a machine's record. It does nothing if there is none.
func (d *Driver) erase(id bourse.MachineID) error {
	err := d.root.Remove(string(id) + suffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, d.syncDir())
}

func (d *Driver) syncDir() error {
	f, err := d.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// readAll reads all records and removes files left by interrupted writes. If it cannot read a
// record, it logs the error and skips the job.
func (d *Driver) readAll() ([]record, error) {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return nil, err
	}
	var out []record
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), tempSuffix) {
			if err := d.root.Remove(e.Name()); err != nil {
				return nil, err
			}
			continue
		}
		id, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok {
			continue
		}
		r, err := d.readOne(e.Name())
		if err == nil && string(r.ID.Machine) != id {
			err = bourse.Errorf(bourse.CodeInvalid, "the record belongs to machine %s", r.ID.Machine)
		}
		if err != nil {
			d.cfg.Log.Error("read record of claimed job failed", "machine", id, "err", err)
			continue
		}
		out = append(out, r)
	}
	return out, nil
}

func (d *Driver) readOne(name string) (record, error) {
	f, err := d.root.Open(name)
	if err != nil {
		return record{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err != nil {
		return record{}, err
	}
	return decodeRecord(text)
}
