package fabric

import (
	"net/http"

	"github.com/bourse-dev/bourse"
)

// The verbs about volumes.
var (
	VolumeList     = read[VolumesQuery, []bourse.Volume]("volume/list")
	VolumeShow     = read[bourse.VolumeID, bourse.Volume]("volume/show") // with its usage
	VolumeUpdate   = act[VolumeChange, bourse.Volume]("volume/update")
	VolumeExtend   = act[ExtendRequest, bourse.Volume]("volume/extend")               // once it has grown
	VolumeDestroy  = act[bourse.VolumeID, bourse.Volume]("volume/destroy")            // once it is gone
	VolumeSnapshot = act[bourse.VolumeID, bourse.Snapshot]("volume/snapshot")         // once it is taken
	VolumeGrant    = act[GrantRequest, string]("volume/grant")                        // lets another worker read it for a day, by the reply
	VolumeExport   = pipe[Export]("volume/export", http.MethodGet, bourse.RoleWorker) // its content, as package volume streams it; the reader verifies it
)

// VolumesQuery selects volumes: zero fields select all of them.
type VolumesQuery struct {
	App     bourse.AppName `json:"app,omitempty"` // without AppID: of every app that has or had this name
	AppID   string         `json:"app_id,omitempty"`
	Deleted bool           `json:"deleted,omitempty"` // destroyed ones too
}

// VolumeChange changes how a volume is kept. Nil fields stay as they are.
type VolumeChange struct {
	Volume         bourse.VolumeID `json:"volume"`
	RetentionDays  *int            `json:"retention_days,omitempty"`
	ScheduledSnaps *bool           `json:"scheduled_snaps,omitempty"`
}

// ExtendRequest makes a volume larger; never smaller.
type ExtendRequest struct {
	Volume bourse.VolumeID `json:"volume"`
	SizeGB int64           `json:"size_gb"`
}

// GrantRequest asks a worker to let another one read a volume or snapshot.
type GrantRequest struct {
	ID  string          `json:"id"` // of the volume or snapshot
	To  bourse.WorkerID `json:"to"`
	App bourse.App      `json:"app"` // whose it must be
}

// Export is a volume or snapshot that another worker reads, and the grant to do
// so.
type Export struct {
	ID    string `json:"id"`
	Grant string `json:"grant"`

	// Moment and Offset continue an earlier stream; see volume.Position.
	Moment string `json:"moment,omitempty"`
	Offset int64  `json:"offset,omitempty"`
}
