package launch_test

import (
	"fmt"
	"log"

	"hallmark/launch"
)

// Start a program that waits until it is observed. The program's main has called
// launch.ExecWhenReady.
func Example() {
	c, err := launch.Start([]string{"echo", "hello"})
	if err != nil {
		log.Fatal(err)
	}
	// A recording of c, or of the process c.PID(), is prepared here.
	if err := c.Release(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("status", c.Wait())
	// Output:
	// hello
	// status 0
}
