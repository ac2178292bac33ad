package machinesapi

import (
	"encoding/json"
	"time"

	"github.com/bourse-dev/bourse"
)

// Volume is a volume as the Machines API shows it.
type Volume struct {
	VolumeSummary
	VolumeHost
	*VolumeUse // nil in a summary, and while it is not known
}

// VolumeSummary is what a summarised list shows of a volume.
type VolumeSummary struct {
	ID                bourse.VolumeID    `json:"id"`
	Name              string             `json:"name"`
	State             bourse.VolumeState `json:"state"`
	SizeGB            int64              `json:"size_gb"`
	Region            bourse.Region      `json:"region"`
	Zone              string             `json:"zone"` // of its worker: no two workers have the same
	Encrypted         bool               `json:"encrypted"`
	FSType            string             `json:"fstype"`
	Machine           *bourse.MachineID  `json:"attached_machine_id"` // null: free
	Alloc             *string            `json:"attached_alloc_id"`   // always null
	CreatedAt         time.Time          `json:"created_at"`
	SnapshotRetention int                `json:"snapshot_retention"` // days
	AutoBackup        bool               `json:"auto_backup_enabled"`
	Type              string             `json:"type"` // "local"
}

// VolumeHost describes a volume's worker; most of it is
// Bourse's own.
type VolumeHost struct {
	HostStatus     HostStatus      `json:"host_status"`
	HostHeard      string          `json:"host_heard_at,omitempty"` // RFC 3339: when the host was last heard from, if it is not ok
	HostDedication string          `json:"host_dedication_id"`      // always ""
	App            bourse.AppName  `json:"app,omitempty"`
	Worker         bourse.WorkerID `json:"worker,omitempty"`
	OrderID        bourse.OrderID  `json:"order_id,omitempty"` // that the volume fills
	Error          string          `json:"error,omitempty"`    // why it is failed
	UpdatedAt      time.Time       `json:"updated_at"`
}

// VolumeUse is how full a volume is.
type VolumeUse struct {
	Blocks      int64 `json:"blocks"`
	BlockSize   int64 `json:"block_size"` // bytes
	BlocksFree  int64 `json:"blocks_free"`
	BlocksAvail int64 `json:"blocks_avail"`
	BytesTotal  int64 `json:"bytes_total"`
	BytesUsed   int64 `json:"bytes_used"`
}

// FromVolume converts a volume whose worker has just sent it.
func FromVolume(v *bourse.Volume) Volume {
	out := SummaryOfVolume(v)
	if u := v.Usage; u != nil {
		out.VolumeUse = &VolumeUse{
			Blocks: u.Blocks, BlockSize: u.BlockSize, BlocksFree: u.BlocksFree, BlocksAvail: u.BlocksAvail,
			BytesTotal: u.Blocks * u.BlockSize, BytesUsed: (u.Blocks - u.BlocksFree) * u.BlockSize,
		}
	}
	return out
}

// SummaryOfVolume shows a volume without how full it is.
func SummaryOfVolume(v *bourse.Volume) Volume {
	out := Volume{VolumeSummary: VolumeSummary{
		ID: v.ID, Name: v.Spec.Name, State: v.State, SizeGB: v.Spec.SizeGB, Region: v.Region, Zone: v.ID.Tag().String(),
		Encrypted: v.Spec.Encrypted, FSType: v.Spec.FSType, CreatedAt: wholeSeconds(v.CreatedAt),
		SnapshotRetention: v.Spec.RetentionDays, AutoBackup: v.Spec.ScheduledSnaps, Type: "local",
	}, VolumeHost: VolumeHost{
		HostStatus: HostOK, App: v.App, Worker: v.Worker, OrderID: v.Order, Error: v.Error, UpdatedAt: wholeSeconds(v.UpdatedAt),
	}}
	if v.Machine != "" {
		id := v.Machine
		out.Machine = &id
	}
	return out
}

func wholeSeconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// CreateVolume is the body of a request for a new volume. Fields that are
// absent or null have the defaults given with them.
type CreateVolume struct {
	Name              string            `json:"name"`
	Region            string            `json:"region"`                         // one region
	SizeGB            *int64            `json:"size_gb,omitempty"`              // default 3, or the size of what it is made from
	Encrypted         *bool             `json:"encrypted,omitempty"`            // default false
	FSType            *string           `json:"fstype,omitempty"`               // default ext4
	UniqueZone        *bool             `json:"require_unique_zone,omitempty"`  // default true: not on a worker with another volume of this name
	UniqueZoneApp     *bool             `json:"unique_zone_app_wide,omitempty"` // default false
	SnapshotRetention *int              `json:"snapshot_retention,omitempty"`   // default 5 days
	AutoBackup        *bool             `json:"auto_backup_enabled,omitempty"`  // default true: a snapshot a day
	Snapshot          bourse.SnapshotID `json:"snapshot_id,omitempty"`          // filled from it
	Source            bourse.VolumeID   `json:"source_volume_id,omitempty"`     // a fork of it
	Compute           *Compute          `json:"compute,omitempty"`              // the worker has capacity for such a machine, too
	ComputeImage      string            `json:"compute_image,omitempty"`        // the worker runs this image, and can pull it
	HostDedication    string            `json:"host_dedication_id,omitempty"`   // refused: see Review

	Deadline     bourse.Duration     `json:"deadline,omitempty"`     // ours: for the whole order; default 10 s
	FirstTry     bool                `json:"first_try,omitempty"`    // ours: the order's id was never sent before
	Requirements bourse.Requirements `json:"requirements,omitempty"` // ours: of the worker, as a machine's config has them
}

// Compute is the guest that a volume is for. Clients write it as such, or as
// {"guest": …}.
type Compute struct {
	bourse.Guest
	HostDedication string `json:"host_dedication_id,omitempty"` // refused: see [CreateVolume.Review]
}

// UnmarshalJSON reads both spellings.
func (c *Compute) UnmarshalJSON(b []byte) error {
	type plain Compute
	var nested struct {
		Guest *plain `json:"guest"`
	}
	if err := json.Unmarshal(b, &nested); err != nil {
		return err
	}
	if nested.Guest != nil {
		*c = Compute(*nested.Guest)
		return nil
	}
	return json.Unmarshal(b, (*plain)(c))
}

// Review reports CodeInvalid for a member that would promise a host of the
// caller's own, as a machine's config may not either.
func (c *CreateVolume) Review() error {
	if c.HostDedication == "" && (c.Compute == nil || c.Compute.HostDedication == "") {
		return nil
	}
	return bourse.Errorf(bourse.CodeInvalid, "invalid host_dedication_id: %s", bourse.FieldOf("config.guest.host_dedication_id").Reason)
}

// Spec returns what is ordered.
func (c *CreateVolume) Spec() bourse.VolumeOrder {
	spec := bourse.VolumeOrder{
		Name: c.Name, SizeGB: or(c.SizeGB, 0), Encrypted: or(c.Encrypted, false), FSType: or(c.FSType, ""),
		UniqueZone: or(c.UniqueZone, true), UniqueZoneApp: or(c.UniqueZoneApp, false),
		Snapshot: c.Snapshot, Source: c.Source,
		RetentionDays: or(c.SnapshotRetention, 0), ScheduledSnaps: or(c.AutoBackup, true),
	}
	if c.Compute != nil {
		spec.Compute = &c.Compute.Guest
	}
	return spec
}

func or[T any](p *T, absent T) T {
	if p == nil {
		return absent
	}
	return *p
}

// UpdateVolume changes how a volume is kept. What is absent or null stays.
type UpdateVolume struct {
	SnapshotRetention *int  `json:"snapshot_retention,omitempty"`
	AutoBackup        *bool `json:"auto_backup_enabled,omitempty"`
}

// ExtendVolume makes a volume larger.
type ExtendVolume struct {
	SizeGB int64 `json:"size_gb"`
}

// Extended is the answer to it.
type Extended struct {
	Volume       Volume `json:"volume"`
	NeedsRestart bool   `json:"needs_restart"` // its machine sees the new size when it is started again: the host cannot grow what is used
}

// Snapshot is a snapshot of a volume.
type Snapshot struct {
	ID            bourse.SnapshotID    `json:"id"`
	Size          int64                `json:"size"`        // bytes that it takes
	VolumeSize    int64                `json:"volume_size"` // bytes that the volume had
	Digest        string               `json:"digest"`
	CreatedAt     time.Time            `json:"created_at"`
	Status        bourse.SnapshotState `json:"status"`
	RetentionDays int                  `json:"retention_days"`
	Scheduled     bool                 `json:"scheduled,omitempty"` // ours: by the clock
}

// FromSnapshot shows a snapshot.
func FromSnapshot(s *bourse.Snapshot) Snapshot {
	return Snapshot{
		ID: s.ID, Size: s.Bytes, VolumeSize: s.SizeGB << 30, Digest: s.Digest, CreatedAt: wholeSeconds(s.CreatedAt), Status: s.State,
		RetentionDays: s.RetentionDays, Scheduled: s.Scheduled,
	}
}

// OrgVolumes is the reply of the list of an organization's volumes.
type OrgVolumes struct {
	Volumes    []Volume `json:"volumes"`
	NextCursor string   `json:"next_cursor"` // always "": everything is in one page
}
