package web

import (
	"embed"
	"io/fs"
	"net/http"
	"path"
	"sync"
)

// The pages, as they are written: there is no build step. A browser gets the styles and modules of a page as one
// file each.
//
//go:embed app
var assets embed.FS

// bundled are the pages, with their styles and scripts, by name. Its error would be one of the
// files that are inside.
var bundled = sync.OnceValues(func() (map[string][]byte, error) {
	all := map[string][]byte{}
	for _, name := range []string{"app/index", "app/site"} {
		page, style, script, err := bundlePage(name + ".html")
		if err != nil {
			return nil, err
		}
		all[name+".html"], all[name+".css"], all[name+".js"] = page, style, script
	}
	return all, nil
})

// servePage returns what serves a page.
func servePage(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { sendAsset(w, r, name) }
}

// serveAsset serves a style or a script.
func serveAsset(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Path[1:]
	if ext := path.Ext(name); ext != ".js" && ext != ".css" {
		http.NotFound(w, r)
		return
	}
	sendAsset(w, r, name)
}

func sendAsset(w http.ResponseWriter, r *http.Request, name string) {
	all, err := bundled()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	b, ok := all[name]
	if !ok {
		if b, err = fs.ReadFile(assets, name); err != nil {
			http.NotFound(w, r)
			return
		}
	}
	w.Header().Set("Content-Type", typeOf(name))
	sendBytes(w, r, b)
}

// typeOf does not ask the machine, which may have a type of its own for an extension.
func typeOf(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	}
	return "application/octet-stream"
}
