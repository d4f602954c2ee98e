package cli

import (
	"os"
	"strings"

	"github.com/spf13/pflag"

	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/regular"
	"hallmark/server/client"
)

// serverOptions name a symbol server.
type serverOptions struct {
	url       string
	tokenFile string
}

func (o *serverOptions) addFlags(flags *pflag.FlagSet, what string) {
	flags.StringVar(&o.url, "server", "", what+" at this `URL`, which 'hallmark serve' prints (default: HALLMARK_SERVER)")
	flags.StringVar(&o.tokenFile, "token-file", "", "the token for the server is in this `FILE` (default: HALLMARK_TOKEN has it)")
}

const maxTokenFile = 4096

// client returns the client of the server, nil where none is named.
func (o *serverOptions) client() (*client.Client, error) {
	if o.url == "" {
		return nil, nil
	}
	token := os.Getenv("HALLMARK_TOKEN")
	if o.tokenFile != "" {
		b, err := regular.ReadFile(o.tokenFile, maxTokenFile)
		if err != nil {
			return nil, err
		}
		token = strings.TrimSpace(string(b))
	}
	c, err := client.New(o.url, token)
	if err != nil {
		return nil, verb.Usage(err)
	}
	return c, nil
}

// need is client where the server has to be named, by the flag or the environment.
func (o *serverOptions) need() (*client.Client, error) {
	if o.url == "" {
		o.url = os.Getenv("HALLMARK_SERVER")
	}
	if o.url == "" {
		return nil, verb.Usagef("--server URL is missing: 'hallmark serve' prints it")
	}
	return o.client()
}
