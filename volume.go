package bourse

import (
	"crypto/rand"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
)

// VolumeID identifies a volume. It consists of "vol_" and 16 base-36 digits. The first 5 digits
// encode the tag of the volume's worker, so that the ID also serves as an address.
type VolumeID string

// SnapshotID identifies a snapshot of a volume. It consists of "vs_" and 16 base-36 digits, like
// those of a VolumeID.
type SnapshotID string

const (
	volumePrefix   = "vol_"
	snapshotPrefix = "vs_"
	tagDigits      = 5  // number of base-36 digits that encode a tag; 36^5 is greater than 2^24
	randomDigits   = 11 // number of random base-36 digits
)

// NewVolumeID returns a new ID for a volume on the worker with the given tag.
func NewVolumeID(tag WorkerTag) VolumeID { return VolumeID(volumePrefix + idPrefix(tag)) }

// NewSnapshotID returns a new ID for a volume snapshot on the worker with the given tag.
func NewSnapshotID(tag WorkerTag) SnapshotID { return SnapshotID(snapshotPrefix + idPrefix(tag)) }

func idPrefix(tag WorkerTag) string {
	most := new(big.Int).Exp(big.NewInt(36), big.NewInt(randomDigits), nil)
	n, _ := rand.Int(rand.Reader, most) // crypto/rand never fails
	return padded(strconv.FormatUint(uint64(tag&0xffffff), 36), tagDigits) + padded(n.Text(36), randomDigits)
}

func padded(s string, width int) string { return strings.Repeat("0", width-len(s)) + s }

// Tag returns the tag of the volume's worker, or 0 if the ID is malformed.
func (v VolumeID) Tag() WorkerTag { return tagOf(string(v), volumePrefix) }

// Tag returns the tag of the snapshot's worker, or 0 if the ID is malformed.
func (s SnapshotID) Tag() WorkerTag { return tagOf(string(s), snapshotPrefix) }

// Validate returns CodeInvalid unless v has the form of a volume ID.
func (v VolumeID) Validate() error { return validateRouted("volume id", string(v), volumePrefix) }

// Validate returns CodeInvalid unless s has the form of a snapshot ID.
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
	if !ok || len(rest) != tagDigits+randomDigits || strings.Trim(rest, "0123456789abcdefghijklmnopqrstuvwxyz") != "" {
		return Errorf(CodeInvalid, "%s %s: want %s and %d of 0-9 and a-z", what, Quoted(id), prefix, tagDigits+randomDigits)
	}
	return nil
}

// VolumeState is a volume's state.
type VolumeState string

// States of a volume, named as in the Machines API.
const (
	VolumeCreating   VolumeState = "creating"   // recorded; its file system is being created
	VolumeRestoring  VolumeState = "restoring"  // it is being filled from a snapshot
	VolumeHydrating  VolumeState = "hydrating"  // it is being filled from another volume
	VolumeCreated    VolumeState = "created"    // it can be attached
	VolumeExtending  VolumeState = "extending"  // it is being extended, but stays usable
	VolumeFailed     VolumeState = "failed"     // it could not be created, and contains no data
	VolumeDestroying VolumeState = "destroying" // its remains on the host are being removed
	VolumeDestroyed  VolumeState = "destroyed"  // removed, but its record is kept temporarily
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

// Usable reports whether a volume in this state can be attached to a machine and mounted.
func (s VolumeState) Usable() bool { return s == VolumeCreated || s == VolumeExtending }

// Volume is a worker's record of a volume, which is storage that outlives machines. Only that
// worker changes the record.
type Volume struct {
	ID        VolumeID     `json:"id"`
	App       AppName      `json:"app"`
	AppID     string       `json:"app_id,omitempty"` // ID of the volume's app; see [App.Owns]
	Worker    WorkerID     `json:"worker"`
	Region    Region       `json:"region"`
	Order     OrderID      `json:"order"`               // the order that the volume fills
	Placement []byte       `json:"placement,omitempty"` // like Machine.Placement
	State     VolumeState  `json:"state"`
	Spec      VolumeOrder  `json:"spec"`                // the volume as ordered, except that SizeGB increases when the volume is extended
	Machine   MachineID    `json:"machine,omitempty"`   // the machine that the volume is attached to; "": none
	Takes     Amounts      `json:"takes,omitempty"`     // resources that the volume takes, from the worker's ledger
	TargetGB  int64        `json:"target_gb,omitempty"` // new size in binary gigabytes, while the volume is being extended
	Error     string       `json:"error,omitempty"`     // why the volume has failed
	Snapshots []Snapshot   `json:"snapshots,omitempty"`
	Usage     *VolumeUsage `json:"usage,omitempty"` // set when the record is read, if the usage is known
	// NeedsRestart is set only in the reply to a request that extends the volume. It means that the
	// machine to which the volume is attached must be restarted to see the new size.
	NeedsRestart bool      `json:"needs_restart,omitempty"`
	CreatedAt    time.Time `json:"created_at"`
	UpdatedAt    time.Time `json:"updated_at"`
}

// VolumeUsage describes how much of a volume's file system is used.
type VolumeUsage struct {
	BlockSize   int64 `json:"block_size"` // in bytes
	Blocks      int64 `json:"blocks"`
	BlocksFree  int64 `json:"blocks_free"`
	BlocksAvail int64 `json:"blocks_avail"` // blocks that users other than root may still use
}

// Snapshot is a copy of the contents of a volume at one moment. The volume's worker keeps the
// snapshot until its retention period ends, even if the volume is destroyed.
type Snapshot struct {
	ID            SnapshotID    `json:"id"`
	Volume        VolumeID      `json:"volume"`
	State         SnapshotState `json:"state"`
	Bytes         int64         `json:"bytes"`            // size on the worker's disk
	SizeGB        int64         `json:"size_gb"`          // size of the volume when the snapshot was taken
	Digest        string        `json:"digest,omitempty"` // digest of the snapshot's manifest, "sha256:…"
	RetentionDays int           `json:"retention_days"`
	Scheduled     bool          `json:"scheduled,omitempty"` // created by the daily schedule of the volume
	CreatedAt     time.Time     `json:"created_at"`
}

// Expired reports whether the snapshot's retention period has ended. A failed snapshot is kept for
// the same time, so that users can see the failure. A snapshot in progress does not expire.
func (s *Snapshot) Expired(now time.Time) bool {
	return s.State != SnapshotCreating && !now.Before(s.CreatedAt.Add(time.Duration(s.RetentionDays)*24*time.Hour))
}

// SnapshotState is a snapshot's state.
type SnapshotState string

// States of a snapshot.
const (
	SnapshotCreating SnapshotState = "creating"
	SnapshotCreated  SnapshotState = "created"
	SnapshotFailed   SnapshotState = "failed"
)

// VolumeOrder describes the volume that an order requests.
type VolumeOrder struct {
	Name           string     `json:"name"`    // not unique; a machine's Mount.Name contains this name
	SizeGB         int64      `json:"size_gb"` // in binary gigabytes; 1 to MaxVolumeGB
	Encrypted      bool       `json:"encrypted,omitempty"`
	FSType         string     `json:"fstype,omitempty"`          // only ext4, which is also the default
	UniqueZone     bool       `json:"unique_zone,omitempty"`     // do not use a worker that has another volume of the app with this name
	UniqueZoneApp  bool       `json:"unique_zone_app,omitempty"` // do not use a worker that has another volume of the app
	Snapshot       SnapshotID `json:"snapshot,omitempty"`        // snapshot to restore
	Source         VolumeID   `json:"source,omitempty"`          // volume to fork; excludes Snapshot
	RetentionDays  int        `json:"retention_days,omitempty"`  // retention period of the volume's snapshots, in days; default 5, at most 60
	ScheduledSnaps bool       `json:"scheduled_snaps,omitempty"` // take a snapshot every day
	Grant          string     `json:"grant,omitempty"`           // allows the worker to read Snapshot or Source from another worker; only in claims
	Compute        *Guest     `json:"compute,omitempty"`         // the worker must also have free capacity for a machine of this size; the capacity is not held
}

// LabelEncrypted is the label of workers that can encrypt volumes. If a worker does not have this
// label, its refusal of an encrypted volume names the label.
const LabelEncrypted = "volume.encrypted"

// Defaults and limits of a volume.
const (
	DefaultVolumeGB      = 3
	MaxVolumeGB          = 64 << 10
	DefaultRetentionDays = 5
	MaxRetentionDays     = 60
	DefaultFSType        = "ext4"
)

// WithDefaults returns v with defaults filled in. It does not validate v.
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

// Validate returns CodeInvalid if a field is out of range.
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
		return Errorf(CodeInvalid, "snapshot_id and source_volume_id cannot be combined")
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

// ValidVolumeName reports whether s can be the name of a volume. A name consists of 1 to 30
// characters (a-z, 0-9 and _).
func ValidVolumeName(s string) bool {
	return len(s) >= 1 && len(s) <= 30 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// Disk returns the disk space that the volume takes from its worker.
func (v VolumeOrder) Disk() MiB { return MiB(v.SizeGB) << 10 }
