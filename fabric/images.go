package fabric

import (
	"net/http"

	"github.com/bourse-dev/bourse"
)

// The verbs about images.
var (
	ImageList    = read[struct{}, []bourse.Image]("image/list")                    // also those that are being pulled
	ImageResolve = read[ResolveRequest, bourse.ImageRef]("image/resolve")          // what its registry says a name means now
	ImagePull    = lines[PullRequest, bourse.Image]("image/pull", http.MethodPost) // its progress, at last the image without Pull
	ImagePrune   = act[struct{}, []bourse.Image]("image/prune")                    // removes those that no machine uses
)

// ResolveRequest names an image, and the organisation to which its registry is to
// show it.
type ResolveRequest struct {
	Image string `json:"image"`
	Org   string `json:"org,omitempty"`
}

// PullRequest names an image to pull.
type PullRequest struct {
	Image string `json:"image"`
}
