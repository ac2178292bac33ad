package fabric

import (
	"net/http"

	"github.com/bourse-dev/bourse"
)

// Verbs for volumes.
var (
	VolumeList     = read[VolumesQuery, []bourse.Volume]("volume/list")
	VolumeShow     = read[bourse.VolumeID, bourse.Volume]("volume/show") // includes the volume's usage
	VolumeUpdate   = act[VolumeChange, bourse.Volume]("volume/update")
	VolumeExtend   = act[ExtendRequest, bourse.Volume]("volume/extend")       // returns once the volume has been extended
	VolumeDestroy  = act[bourse.VolumeID, bourse.Volume]("volume/destroy")    // returns once the volume is destroyed
	VolumeSnapshot = act[bourse.VolumeID, bourse.Snapshot]("volume/snapshot") // returns once the snapshot is complete
	// Allows another worker to read the volume or snapshot for a day; returns the grant.
	VolumeGrant  = act[GrantRequest, string]("volume/grant")
	VolumeExport = pipe[Export]("volume/export", http.MethodGet, bourse.RoleWorker) // sends the content in the format of package volume; the reader verifies it
)

// VolumesQuery selects volumes. An empty field matches every volume.
type VolumesQuery struct {
	App     bourse.AppName `json:"app,omitempty"` // if AppID is empty, matches all apps that have or had this name
	AppID   string         `json:"app_id,omitempty"`
	Deleted bool           `json:"deleted,omitempty"` // whether to include destroyed volumes
}

// VolumeChange changes the settings of a volume. Nil fields stay unchanged.
type VolumeChange struct {
	Volume         bourse.VolumeID `json:"volume"`
	RetentionDays  *int            `json:"retention_days,omitempty"`
	ScheduledSnaps *bool           `json:"scheduled_snaps,omitempty"`
}

// ExtendRequest extends a volume. Volumes cannot shrink.
type ExtendRequest struct {
	Volume bourse.VolumeID `json:"volume"`
	SizeGB int64           `json:"size_gb"`
}

// GrantRequest asks a worker to allow another worker to read a volume or snapshot.
type GrantRequest struct {
	ID  string          `json:"id"` // id of the volume or snapshot
	To  bourse.WorkerID `json:"to"`
	App bourse.App      `json:"app"` // app that must own the volume or snapshot
}

// Export is another worker's request to read a volume or snapshot, with the grant that permits
// it.
type Export struct {
	ID    string `json:"id"`
	Grant string `json:"grant"`

	// If set, Moment and Offset are the position at which to resume an earlier stream; see volume.Position.
	Moment string `json:"moment,omitempty"`
	Offset int64  `json:"offset,omitempty"`
}
