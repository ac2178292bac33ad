package machine

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

// NewReservation returns the "reservation" commands.
func NewReservation(s *cli.Shell) *cobra.Command {
	c := cli.Noun("reservation", "Hold capacity for future machines",
		newReservationCreate(s), newReservationList(s), newReservationShow(s), newReservationExtend(s), newRelease(s))
	c.Aliases = []string{"reservations"}
	return c
}

func bindTTL(c *cobra.Command, ttl *time.Duration) {
	c.Flags().DurationVar(ttl, "ttl", bourse.DefaultHold, "`duration` of the reservation, 1s to 1h, rounded up to seconds")
}

func holdSeconds(ttl time.Duration) (int64, error) {
	seconds := cli.SecondsUp(ttl)
	if err := bourse.ValidateHold(time.Duration(seconds) * time.Second); err != nil || ttl > bourse.MaxHold {
		return 0, bourse.Errorf(bourse.CodeInvalid, "--ttl %s: use %s to %s", ttl, bourse.MinHold, bourse.MaxHold)
	}
	return seconds, nil
}

func parseID(word string) (bourse.ReservationID, error) {
	id := bourse.ReservationID(word)
	return id, id.Validate()
}

// hintReservation adds a hint to an error from the API.
func hintReservation(err error) error {
	switch bourse.CodeOf(err) {
	case bourse.CodeNotFound, bourse.CodeConflict:
		return cli.Hint(err, "bourse reservation create")
	case bourse.CodeTimeout:
		return cli.Hint(err, "the same command again, which is safe to repeat")
	default:
		return err
	}
}
