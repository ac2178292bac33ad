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
	*VolumeUse // nil in a summary, or if the used space is unknown
}

// VolumeSummary contains the volume fields that even a summary list includes.
type VolumeSummary struct {
	ID                bourse.VolumeID    `json:"id"`
	Name              string             `json:"name"`
	State             bourse.VolumeState `json:"state"`
	SizeGB            int64              `json:"size_gb"`
	Region            bourse.Region      `json:"region"`
	Zone              string             `json:"zone"` // zone of the worker; each worker is a separate zone
	Encrypted         bool               `json:"encrypted"`
	FSType            string             `json:"fstype"`
	Machine           *bourse.MachineID  `json:"attached_machine_id"` // null: the volume is not attached
	Alloc             *string            `json:"attached_alloc_id"`   // always null
	CreatedAt         time.Time          `json:"created_at"`
	SnapshotRetention int                `json:"snapshot_retention"` // in days
	AutoBackup        bool               `json:"auto_backup_enabled"`
	Type              string             `json:"type"` // always "local"
}

// VolumeHost describes a volume's worker. Most of its fields are additions by Bourse.
type VolumeHost struct {
	HostStatus     HostStatus      `json:"host_status"`
	HostHeard      string          `json:"host_heard_at,omitempty"` // RFC 3339; when the host was last reachable, if its status is not ok
	HostDedication string          `json:"host_dedication_id"`      // always ""
	App            bourse.AppName  `json:"app,omitempty"`
	Worker         bourse.WorkerID `json:"worker,omitempty"`
	OrderID        bourse.OrderID  `json:"order_id,omitempty"` // ID of the order that the volume fills
	Error          string          `json:"error,omitempty"`    // why the volume has failed
	UpdatedAt      time.Time       `json:"updated_at"`
}

// VolumeUse describes the used space of a volume.
type VolumeUse struct {
	Blocks      int64 `json:"blocks"`
	BlockSize   int64 `json:"block_size"` // in bytes
	BlocksFree  int64 `json:"blocks_free"`
	BlocksAvail int64 `json:"blocks_avail"`
	BytesTotal  int64 `json:"bytes_total"`
	BytesUsed   int64 `json:"bytes_used"`
}

// FromVolume converts a volume that the broker has just received from the volume's worker.
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

// SummaryOfVolume converts a volume to a summary, which lacks its used space.
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

// CreateVolume is the body of a request to create a volume. A missing or null field has its default value.
type CreateVolume struct {
	Name      string  `json:"name"`
	Region    string  `json:"region"`              // one region
	SizeGB    *int64  `json:"size_gb,omitempty"`   // default 3, or the size of the source
	Encrypted *bool   `json:"encrypted,omitempty"` // default false
	FSType    *string `json:"fstype,omitempty"`    // default ext4
	// UniqueZone excludes workers that have a volume with the same name. The default is true.
	UniqueZone        *bool             `json:"require_unique_zone,omitempty"`
	UniqueZoneApp     *bool             `json:"unique_zone_app_wide,omitempty"` // default false
	SnapshotRetention *int              `json:"snapshot_retention,omitempty"`   // default 5 days
	AutoBackup        *bool             `json:"auto_backup_enabled,omitempty"`  // take a snapshot every day; default true
	Snapshot          bourse.SnapshotID `json:"snapshot_id,omitempty"`          // snapshot to restore
	Source            bourse.VolumeID   `json:"source_volume_id,omitempty"`     // volume to fork
	Compute           *Compute          `json:"compute,omitempty"`              // the worker must also have capacity for a machine with this guest
	ComputeImage      string            `json:"compute_image,omitempty"`        // the worker must support this image and be able to pull it
	HostDedication    string            `json:"host_dedication_id,omitempty"`   // not supported; see Review

	Deadline     bourse.Duration     `json:"deadline,omitempty"`     // added by Bourse: time limit for the whole order; default 10 s
	FirstTry     bool                `json:"first_try,omitempty"`    // added by Bourse: the order's ID has never been sent before
	Requirements bourse.Requirements `json:"requirements,omitempty"` // added by Bourse: requirements for the worker, as in a machine's config
}

// Compute is the guest of the machine that will use a volume. Clients encode it either directly or
// as {"guest": …}.
type Compute struct {
	bourse.Guest
	HostDedication string `json:"host_dedication_id,omitempty"` // not supported; see [CreateVolume.Review]
}

// UnmarshalJSON decodes both encodings.
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

// Review returns CodeInvalid if the request asks for a dedicated host, which neither volumes nor machines support.
func (c *CreateVolume) Review() error {
	if c.HostDedication == "" && (c.Compute == nil || c.Compute.HostDedication == "") {
		return nil
	}
	return bourse.Errorf(bourse.CodeInvalid, "invalid host_dedication_id: %s", bourse.FieldOf("config.guest.host_dedication_id").Reason)
}

// Spec returns the request's specification of the volume.
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

// UpdateVolume is the body of a request to change the snapshot settings of a volume. A missing or null field does not
// change.
type UpdateVolume struct {
	SnapshotRetention *int  `json:"snapshot_retention,omitempty"`
	AutoBackup        *bool `json:"auto_backup_enabled,omitempty"`
}

// ExtendVolume is the body of a request to enlarge a volume.
type ExtendVolume struct {
	SizeGB int64 `json:"size_gb"`
}

// Extended is the reply to a request to enlarge a volume.
type Extended struct {
	Volume       Volume `json:"volume"`
	NeedsRestart bool   `json:"needs_restart"` // the machine sees the new size only after a restart
}

// Snapshot is a snapshot of a volume.
type Snapshot struct {
	ID            bourse.SnapshotID    `json:"id"`
	Size          int64                `json:"size"`        // size on the worker's disk, in bytes
	VolumeSize    int64                `json:"volume_size"` // size of the volume, in bytes
	Digest        string               `json:"digest"`
	CreatedAt     time.Time            `json:"created_at"`
	Status        bourse.SnapshotState `json:"status"`
	RetentionDays int                  `json:"retention_days"`
	Scheduled     bool                 `json:"scheduled,omitempty"` // added by Bourse: the snapshot was taken by the daily schedule
}

// FromSnapshot converts a snapshot.
func FromSnapshot(s *bourse.Snapshot) Snapshot {
	return Snapshot{
		ID: s.ID, Size: s.Bytes, VolumeSize: s.SizeGB << 30, Digest: s.Digest, CreatedAt: wholeSeconds(s.CreatedAt), Status: s.State,
		RetentionDays: s.RetentionDays, Scheduled: s.Scheduled,
	}
}

// OrgVolumes is the reply to a request for an organization's volumes.
type OrgVolumes struct {
	Volumes    []Volume `json:"volumes"`
	NextCursor string   `json:"next_cursor"` // always "", because there is only one page
}
