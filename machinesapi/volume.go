package machinesapi

import (
	"encoding/json"
	"time"

	"github.com/bourse-dev/bourse"
)

// Volume is a volume in the Machines API.
type Volume struct {
	VolumeSummary
	VolumeHost
	*VolumeUse // nil in a summary, or if unknown
}

// VolumeSummary contains the fields of a volume in a summarized list.
type VolumeSummary struct {
	ID                bourse.VolumeID    `json:"id"`
	Name              string             `json:"name"`
	State             bourse.VolumeState `json:"state"`
	SizeGB            int64              `json:"size_gb"`
	Region            bourse.Region      `json:"region"`
	Zone              string             `json:"zone"` // the worker's zone: each worker has its own
	Encrypted         bool               `json:"encrypted"`
	FSType            string             `json:"fstype"`
	Machine           *bourse.MachineID  `json:"attached_machine_id"` // null: not attached
	Alloc             *string            `json:"attached_alloc_id"`   // always null
	CreatedAt         time.Time          `json:"created_at"`
	SnapshotRetention int                `json:"snapshot_retention"` // days
	AutoBackup        bool               `json:"auto_backup_enabled"`
	Type              string             `json:"type"` // "local"
}

// VolumeHost describes a volume's worker. Most of the fields are Bourse's additions.
type VolumeHost struct {
	HostStatus     HostStatus      `json:"host_status"`
	HostHeard      string          `json:"host_heard_at,omitempty"` // RFC 3339: time when the host was last reachable, if its status is not ok
	HostDedication string          `json:"host_dedication_id"`      // always ""
	App            bourse.AppName  `json:"app,omitempty"`
	Worker         bourse.WorkerID `json:"worker,omitempty"`
	OrderID        bourse.OrderID  `json:"order_id,omitempty"` // the order that the volume fills
	Error          string          `json:"error,omitempty"`    // why it has failed
	UpdatedAt      time.Time       `json:"updated_at"`
}

// VolumeUse is a volume's used space.
type VolumeUse struct {
	Blocks      int64 `json:"blocks"`
	BlockSize   int64 `json:"block_size"` // bytes
	BlocksFree  int64 `json:"blocks_free"`
	BlocksAvail int64 `json:"blocks_avail"`
	BytesTotal  int64 `json:"bytes_total"`
	BytesUsed   int64 `json:"bytes_used"`
}

// FromVolume converts a volume that its worker has just sent.
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

// SummaryOfVolume converts a volume without its used space.
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

// CreateVolume is the body of a request to create a volume. Absent and null fields have the defaults listed with
// them.
type CreateVolume struct {
	Name              string            `json:"name"`
	Region            string            `json:"region"`                         // one region
	SizeGB            *int64            `json:"size_gb,omitempty"`              // default 3, or the size of the source
	Encrypted         *bool             `json:"encrypted,omitempty"`            // default false
	FSType            *string           `json:"fstype,omitempty"`               // default ext4
	UniqueZone        *bool             `json:"require_unique_zone,omitempty"`  // default true: not on a worker with another volume of this name
	UniqueZoneApp     *bool             `json:"unique_zone_app_wide,omitempty"` // default false
	SnapshotRetention *int              `json:"snapshot_retention,omitempty"`   // default 5 days
	AutoBackup        *bool             `json:"auto_backup_enabled,omitempty"`  // default true: a snapshot a day
	Snapshot          bourse.SnapshotID `json:"snapshot_id,omitempty"`          // snapshot to restore
	Source            bourse.VolumeID   `json:"source_volume_id,omitempty"`     // volume to fork
	Compute           *Compute          `json:"compute,omitempty"`              // the worker must also have capacity for such a machine
	ComputeImage      string            `json:"compute_image,omitempty"`        // the worker must support this image and be able to pull it
	HostDedication    string            `json:"host_dedication_id,omitempty"`   // not supported: see Review

	Deadline     bourse.Duration     `json:"deadline,omitempty"`     // added by Bourse: for the whole order; default 10 s
	FirstTry     bool                `json:"first_try,omitempty"`    // added by Bourse: the order's ID has never been sent before
	Requirements bourse.Requirements `json:"requirements,omitempty"` // added by Bourse: requirements for the worker, as in a machine's config
}

// Compute is the guest for which a volume is intended. Clients encode it directly or as {"guest": …}.
type Compute struct {
	bourse.Guest
	HostDedication string `json:"host_dedication_id,omitempty"` // not supported: see [CreateVolume.Review]
}

// UnmarshalJSON accepts both encodings.
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

// Review returns CodeInvalid if the request asks for a dedicated host, which is not supported in a machine's config
// either.
func (c *CreateVolume) Review() error {
	if c.HostDedication == "" && (c.Compute == nil || c.Compute.HostDedication == "") {
		return nil
	}
	return bourse.Errorf(bourse.CodeInvalid, "invalid host_dedication_id: %s", bourse.FieldOf("config.guest.host_dedication_id").Reason)
}

// Spec returns the order for the volume.
func (c *CreateVolume) Spec() bourse.VolumeOrder {
	spec := bourse.VolumeOrder{
		Name: c.Name, SizeGB: valueOr(c.SizeGB, 0), Encrypted: valueOr(c.Encrypted, false), FSType: valueOr(c.FSType, ""),
		UniqueZone: valueOr(c.UniqueZone, true), UniqueZoneApp: valueOr(c.UniqueZoneApp, false),
		Snapshot: c.Snapshot, Source: c.Source,
		RetentionDays: valueOr(c.SnapshotRetention, 0), ScheduledSnaps: valueOr(c.AutoBackup, true),
	}
	if c.Compute != nil {
		spec.Compute = &c.Compute.Guest
	}
	return spec
}

func valueOr[T any](p *T, absent T) T {
	if p == nil {
		return absent
	}
	return *p
}

// UpdateVolume is the body of a request to change a volume's snapshot settings. Absent and null fields do not change.
type UpdateVolume struct {
	SnapshotRetention *int  `json:"snapshot_retention,omitempty"`
	AutoBackup        *bool `json:"auto_backup_enabled,omitempty"`
}

// ExtendVolume is the body of a request to enlarge a volume.
type ExtendVolume struct {
	SizeGB int64 `json:"size_gb"`
}

// Extended is the reply to an ExtendVolume request.
type Extended struct {
	Volume       Volume `json:"volume"`
	NeedsRestart bool   `json:"needs_restart"` // its machine sees the new size only after a restart, because the host cannot grow a mounted volume
}

// Snapshot is a snapshot of a volume.
type Snapshot struct {
	ID            bourse.SnapshotID    `json:"id"`
	Size          int64                `json:"size"`        // bytes on disk
	VolumeSize    int64                `json:"volume_size"` // size of the volume in bytes
	Digest        string               `json:"digest"`
	CreatedAt     time.Time            `json:"created_at"`
	Status        bourse.SnapshotState `json:"status"`
	RetentionDays int                  `json:"retention_days"`
	Scheduled     bool                 `json:"scheduled,omitempty"` // added by Bourse: taken by schedule
}

// FromSnapshot converts a snapshot.
func FromSnapshot(s *bourse.Snapshot) Snapshot {
	return Snapshot{
		ID: s.ID, Size: s.Bytes, VolumeSize: s.SizeGB << 30, Digest: s.Digest, CreatedAt: wholeSeconds(s.CreatedAt), Status: s.State,
		RetentionDays: s.RetentionDays, Scheduled: s.Scheduled,
	}
}

// OrgVolumes is the reply with an organization's volumes.
type OrgVolumes struct {
	Volumes    []Volume `json:"volumes"`
	NextCursor string   `json:"next_cursor"` // always "": there is only one page
}
