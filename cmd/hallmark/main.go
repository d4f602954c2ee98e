// Command hallmark says which exact file every stack frame and every mapping
// of a Linux machine came from, and turns that into functions and lines.
package main

import (
	"os"

	"hallmark/cmd/hallmark/internal/cli"
	"hallmark/launch"
	"hallmark/server/indexer"
)

func main() {
	launch.ExecWhenReady()
	indexer.RunIfChild()
	os.Exit(cli.Main(os.Args))
}
