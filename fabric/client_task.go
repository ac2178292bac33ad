package fabric

import (
	"bufio"
	"context"
	"encoding/json"
	"io"

	"github.com/bourse-dev/bourse"
)

// maxClaimPart bounds one line of a claim's reply that streams: an answer.
const maxClaimPart = 2*bourse.MaxAnswer + maxLine

// streamClaim is exchange for a claim whose caller wants the answer's parts as
// they come.
func streamClaim(ctx context.Context, c *Client, to bourse.Member, a ask) (ClaimReply, error) {
	output := a.body.(*bourse.Claim).Order.Task.Output
	resp, err := c.open(ctx, to, a)
	if err != nil {
		return ClaimReply{}, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxClaimPart)
	for lines.Scan() {
		var part ClaimPart
		if err := json.Unmarshal(lines.Bytes(), &part); err != nil {
			return ClaimReply{}, Lost(ctx, to, err) // it may be the half of a line
		}
		switch {
		case part.Failure != nil:
			return ClaimReply{}, part.Failure.told(to)
		case part.Reply != nil:
			return *part.Reply, nil
		}
		output(part.Output)
	}
	err = lines.Err()
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return ClaimReply{}, Lost(ctx, to, err)
}

// FailureOf returns how a reply that has begun reports err.
func FailureOf(err error) *Failure {
	f := failureOf(err)
	return &f
}
