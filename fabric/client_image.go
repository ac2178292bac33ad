package fabric

import (
	"context"

	"github.com/bourse-dev/bourse"
)

var (
	routeImages     = routeOf(PathImages)
	routeImagePull  = routeOf(PathImagePull)
	routeImagePrune = routeOf(PathImagePrune)
	routeUsage      = routeOf(PathUsage)
)

// Images lists the images that the worker has or is pulling.
func (c *Client) Images(ctx context.Context, to bourse.Member) ([]bourse.Image, error) {
	return exchange[[]bourse.Image](ctx, c, to, ask{route: routeImages})
}

// ImagePull has the worker pull an image, calls progress as it comes, and
// returns the image once it is there. An error of progress ends the request, not
// the pull, and is returned.
func (c *Client) ImagePull(ctx context.Context, to bourse.Member, image string, progress func(bourse.Image) error) (bourse.Image, error) {
	resp, err := c.open(ctx, to, ask{route: routeImagePull, body: PullRequest{Image: image}})
	if err != nil {
		return bourse.Image{}, err
	}
	defer resp.Body.Close()
	var last bourse.Image
	there := false
	err = readLines(ctx, to, resp.Body, func(i bourse.Image) error {
		if i.Pull != nil && i.Pull.Status == "failed" {
			return &bourse.Error{Code: i.Pull.Code, Message: i.Pull.Error}
		}
		if last, there = i, i.Pull == nil; there {
			return nil
		}
		return progress(i)
	})
	if err == nil && !there {
		err = bourse.Errorf(bourse.CodeInternal, "worker %s ended a pull without an image", to.ID)
	}
	return last, err
}

// ImagePrune removes the images that no machine uses, and returns them.
func (c *Client) ImagePrune(ctx context.Context, to bourse.Member) ([]bourse.Image, error) {
	return exchange[[]bourse.Image](ctx, c, to, ask{route: routeImagePrune, body: struct{}{}})
}

// Usage returns what a machine uses now.
func (c *Client) Usage(ctx context.Context, to bourse.Member, id bourse.MachineID) (Usage, error) {
	return exchange[Usage](ctx, c, to, ask{route: routeUsage, id: string(id)})
}
