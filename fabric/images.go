package fabric

import (
	"net/http"

	"github.com/bourse-dev/bourse"
)

// Verbs for images.
var (
	ImageList    = read[struct{}, []bourse.Image]("image/list")                    // includes images that are being pulled
	ImageResolve = read[ResolveRequest, bourse.ImageRef]("image/resolve")          // returns the digest to which a name currently refers in its registry
	ImagePull    = lines[PullRequest, bourse.Image]("image/pull", http.MethodPost) // sends progress, and finally the image with an empty Pull
	ImagePrune   = act[struct{}, []bourse.Image]("image/prune")                    // removes images that no machine uses
)

// ResolveRequest names an image, and the organization whose credentials are used for its registry.
type ResolveRequest struct {
	Image string `json:"image"`
	Org   string `json:"org,omitempty"`
}

// PullRequest names an image to pull.
type PullRequest struct {
	Image string `json:"image"`
}
