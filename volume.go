package bourse

import (
	"crypto/rand"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
)

// VolumeID names a volume: "vol_" and 16 characters of base 36, of which the
// first 5 are its worker's tag, so that an id is an address.
type VolumeID string

// SnapshotID names a snapshot of a volume: "vs_" and 16 characters, as those of
// a VolumeID.
type SnapshotID string

const (
	volumePrefix   = "vol_"
	snapshotPrefix = "vs_"
	tagDigits      = 5  // base 36; 36^5 is more than 2^24
	chanceDigits   = 11 // base 36
)

// NewVolumeID returns a new id that leads to the worker with this tag.
func NewVolumeID(tag WorkerTag) VolumeID { return VolumeID(volumePrefix + routed(tag)) }

// NewSnapshotID returns a new id that leads to the worker with this tag.
func NewSnapshotID(tag WorkerTag) SnapshotID { return SnapshotID(snapshotPrefix + routed(tag)) }

func routed(tag WorkerTag) string {
	most := new(big.Int).Exp(big.NewInt(36), big.NewInt(chanceDigits), nil)
	n, _ := rand.Int(rand.Reader, most) // crypto/rand never fails
	return padded(strconv.FormatUint(uint64(tag&0xffffff), 36), tagDigits) + padded(n.Text(36), chanceDigits)
}

func padded(s string, width int) string { return strings.Repeat("0", width-len(s)) + s }

// Tag returns the tag of the worker that has the volume, or 0 if the id is malformed.
func (v VolumeID) Tag() WorkerTag { return tagOf(string(v), volumePrefix) }

// Tag returns the tag of the worker that has the snapshot, or 0 if the id is malformed.
func (s SnapshotID) Tag() WorkerTag { return tagOf(string(s), snapshotPrefix) }

// Validate reports CodeInvalid unless v has the shape of a volume id.
func (v VolumeID) Validate() error { return validateRouted("volume id", string(v), volumePrefix) }

// Validate reports CodeInvalid unless s has the shape of a snapshot id.
func (s SnapshotID) Validate() error {
	return validateRouted("snapshot id", string(s), snapshotPrefix)
}

func tagOf(id, prefix string) WorkerTag {
	if validateRouted("", id, prefix) != nil {
		return 0
	}
	n, err := strconv.ParseUint(id[len(prefix):len(prefix)+tagDigits], 36, 64)
	if err != nil || n > 0xffffff {
		return 0
	}
	return WorkerTag(n)
}

func validateRouted(what, id, prefix string) error {
	rest, ok := strings.CutPrefix(id, prefix)
	if !ok || len(rest) != tagDigits+chanceDigits || strings.Trim(rest, "0123456789abcdefghijklmnopqrstuvwxyz") != "" {
		return Errorf(CodeInvalid, "%s %s: want %s and %d of 0-9 and a-z", what, Quoted(id), prefix, tagDigits+chanceDigits)
	}
	return nil
}

// VolumeState is a volume's state.
type VolumeState string

// The states of a volume, in the Machines API's words.
const (
	VolumeCreating   VolumeState = "creating"   // recorded; its file system is being created
	VolumeRestoring  VolumeState = "restoring"  // being filled from a snapshot
	VolumeHydrating  VolumeState = "hydrating"  // being filled from another volume
	VolumeCreated    VolumeState = "created"    // can be attached
	VolumeExtending  VolumeState = "extending"  // being extended; stays usable
	VolumeFailed     VolumeState = "failed"     // could not be created; contains no data
	VolumeDestroying VolumeState = "destroying" // its remains on the host are being removed
	VolumeDestroyed  VolumeState = "destroyed"  // removed; its record is kept temporarily
)

var volumeTransitions = map[VolumeState][]VolumeState{
	"":               {VolumeCreating, VolumeRestoring, VolumeHydrating},
	VolumeCreating:   {VolumeCreated, VolumeFailed, VolumeDestroying},
	VolumeRestoring:  {VolumeCreated, VolumeFailed, VolumeDestroying},
	VolumeHydrating:  {VolumeCreated, VolumeFailed, VolumeDestroying},
	VolumeCreated:    {VolumeExtending, VolumeDestroying},
	VolumeExtending:  {VolumeCreated},
	VolumeFailed:     {VolumeDestroying},
	VolumeDestroying: {VolumeDestroyed},
	VolumeDestroyed:  {},
}

// CanBecome reports whether next may follow s.
func (s VolumeState) CanBecome(next VolumeState) bool {
	return slices.Contains(volumeTransitions[s], next)
}

// Usable reports whether a volume in this state can be attached and mounted.
func (s VolumeState) Usable() bool { return s == VolumeCreated || s == VolumeExtending }

// Volume is a worker's record of storage that outlives machines. Only that worker changes
// it.
type Volume struct {
	ID        VolumeID     `json:"id"`
	App       AppName      `json:"app"`
	AppID     string       `json:"app_id,omitempty"` // of the app that it belongs to; see [App.Owns]
	Worker    WorkerID     `json:"worker"`
	Region    Region       `json:"region"`
	Order     OrderID      `json:"order"`               // the order that it fills
	Placement []byte       `json:"placement,omitempty"` // as a machine's
	State     VolumeState  `json:"state"`
	Spec      VolumeOrder  `json:"spec"`               // as ordered; its size grows by extending
	Machine   MachineID    `json:"machine,omitempty"`  // that it is attached to
	Takes     Amounts      `json:"takes,omitempty"`    // from the ledger
	GrowsTo   int64        `json:"grows_to,omitempty"` // gigabytes, while it is extending
	Error     string       `json:"error,omitempty"`    // why it failed
	Snapshots []Snapshot   `json:"snapshots,omitempty"`
	Usage     *VolumeUsage `json:"usage,omitempty"` // filled in on reading, if known
	// NeedsRestart appears in the reply to an extension: the machine that uses the volume
	// sees the new size after a restart.
	NeedsRestart bool      `json:"needs_restart,omitempty"`
	CreatedAt    time.Time `json:"created_at"`
	UpdatedAt    time.Time `json:"updated_at"`
}

// VolumeUsage is the usage of a volume's file system.
type VolumeUsage struct {
	BlockSize   int64 `json:"block_size"` // bytes
	Blocks      int64 `json:"blocks"`
	BlocksFree  int64 `json:"blocks_free"`
	BlocksAvail int64 `json:"blocks_avail"` // to users other than root
}

// Snapshot is a copy of a volume's content at one moment. The volume's worker keeps it
// until its retention ends, even if the volume is destroyed.
type Snapshot struct {
	ID            SnapshotID    `json:"id"`
	Volume        VolumeID      `json:"volume"`
	State         SnapshotState `json:"state"`
	Bytes         int64         `json:"bytes"`            // that it takes on the worker's disk
	SizeGB        int64         `json:"size_gb"`          // of the volume then
	Digest        string        `json:"digest,omitempty"` // of its manifest, "sha256:…"
	RetentionDays int           `json:"retention_days"`
	Scheduled     bool          `json:"scheduled,omitempty"` // created by the volume's schedule
	CreatedAt     time.Time     `json:"created_at"`
}

// Expired reports whether the snapshot's retention has ended. A failed snapshot is kept
// as long, so that the failure is visible. A snapshot in progress does not expire.
func (s *Snapshot) Expired(now time.Time) bool {
	return s.State != SnapshotCreating && !now.Before(s.CreatedAt.Add(time.Duration(s.RetentionDays)*24*time.Hour))
}

// SnapshotState is a snapshot's state.
type SnapshotState string

// The states of a snapshot.
const (
	SnapshotCreating SnapshotState = "creating"
	SnapshotCreated  SnapshotState = "created"
	SnapshotFailed   SnapshotState = "failed"
)

// VolumeOrder is the volume of an order.
type VolumeOrder struct {
	Name           string     `json:"name"`    // not unique; what a machine's mount calls it
	SizeGB         int64      `json:"size_gb"` // 1 to MaxVolumeGB; binary gigabytes
	Encrypted      bool       `json:"encrypted,omitempty"`
	FSType         string     `json:"fstype,omitempty"`          // ext4 (default)
	UniqueZone     bool       `json:"unique_zone,omitempty"`     // not on a worker that has a volume of this app and name
	UniqueZoneApp  bool       `json:"unique_zone_app,omitempty"` // not on a worker that has any volume of the app
	Snapshot       SnapshotID `json:"snapshot,omitempty"`        // filled from it
	Source         VolumeID   `json:"source,omitempty"`          // a fork of it; excludes Snapshot
	RetentionDays  int        `json:"retention_days,omitempty"`  // of its snapshots; default 5, at most 60
	ScheduledSnaps bool       `json:"scheduled_snaps,omitempty"` // a snapshot a day
	Grant          string     `json:"grant,omitempty"`           // permits its worker to read Snapshot or Source on another worker; only in claims
	Compute        *Guest     `json:"compute,omitempty"`         // the worker must also have room for such a machine, for which nothing is held
}

// LabelEncrypted is the label of workers that can encrypt volumes. The refusals of other
// workers contain it.
const LabelEncrypted = "volume.encrypted"

// Bounds and defaults of a volume.
const (
	DefaultVolumeGB      = 3
	MaxVolumeGB          = 64 << 10
	DefaultRetentionDays = 5
	MaxRetentionDays     = 60
	DefaultFSType        = "ext4"
)

// WithDefaults returns v with its defaults filled in. It does not validate.
func (v VolumeOrder) WithDefaults() VolumeOrder {
	if v.SizeGB == 0 {
		v.SizeGB = DefaultVolumeGB
	}
	if v.FSType == "" {
		v.FSType = DefaultFSType
	}
	if v.RetentionDays == 0 {
		v.RetentionDays = DefaultRetentionDays
	}
	if v.Compute != nil {
		g := v.Compute.WithDefaults()
		v.Compute = &g
	}
	return v
}

// Validate reports CodeInvalid when a field is out of its range.
func (v VolumeOrder) Validate() error {
	if !ValidVolumeName(v.Name) {
		return Errorf(CodeInvalid, "invalid volume name %s: use 1 to 30 of a-z, 0-9 and _", Quoted(v.Name))
	}
	switch {
	case v.SizeGB < 1 || v.SizeGB > MaxVolumeGB:
		return Errorf(CodeInvalid, "invalid size_gb %d: use 1 to %d", v.SizeGB, MaxVolumeGB)
	case v.FSType != DefaultFSType:
		return Errorf(CodeInvalid, "invalid fstype %s: use ext4", Quoted(v.FSType))
	case v.RetentionDays < 1 || v.RetentionDays > MaxRetentionDays:
		return Errorf(CodeInvalid, "invalid snapshot_retention %d: use 1 to %d days", v.RetentionDays, MaxRetentionDays)
	case v.Snapshot != "" && v.Source != "":
		return Errorf(CodeInvalid, "snapshot_id and source_volume_id exclude each other")
	}
	if v.Snapshot != "" {
		if err := v.Snapshot.Validate(); err != nil {
			return err
		}
	}
	if v.Source != "" {
		if err := v.Source.Validate(); err != nil {
			return err
		}
	}
	if v.Compute != nil {
		return v.Compute.Validate()
	}
	return nil
}

// ValidVolumeName reports whether s can name a volume: 1 to 30 of a-z, 0-9 and _.
func ValidVolumeName(s string) bool {
	return len(s) >= 1 && len(s) <= 30 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// Disk returns the disk space that the volume takes from its worker.
func (v VolumeOrder) Disk() MiB { return MiB(v.SizeGB) << 10 }
