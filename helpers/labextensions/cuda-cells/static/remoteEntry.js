// JupyterLab: cells that begin with %%cuda, and .cu files, in the colours of C++.
//
// This is what a built extension ends up as, written by hand: a module federation container, with
// init(the modules that JupyterLab shares) and get("./extension"), a promise of a function that
// gives the module (JupyterLab, Extension Developer Guide, "Prebuilt Extensions"). Nothing is built.
(() => {
  const BEGINS = /^%%cuda\b/;
  let shared;

  async function load(name) {
    const versions = Object.values(shared[name]);
    return (await versions[0].get())();
  }

  // An editor takes the language of the highest precedence that it is given. So a cell's own, the
  // kernel's, stays where it is, and C++ is laid over it as long as the cell begins with %%cuda.
  function overlay({Compartment, Prec}, {ViewPlugin}, cpp) {
    const slot = new Compartment();
    const watcher = ViewPlugin.fromClass(class {
      constructor(view) {
        this.view = view;
        this.on = false;
        this.look();
      }
      update(change) {
        if (change.docChanged) this.look();
      }
      look() {
        const on = BEGINS.test(this.view.state.doc.sliceString(0, 20));
        if (on === this.on) return;
        this.on = on;
        // Not now: a view that is being made or updated takes no changes.
        setTimeout(() => this.view.dispatch({
          effects: slot.reconfigure(on ? Prec.highest(cpp) : []),
        }));
      }
    });
    return [slot.of([]), watcher];
  }

  async function extension() {
    const {IEditorExtensionRegistry, IEditorLanguageRegistry, EditorExtensionRegistry} =
      await load("@jupyterlab/codemirror");
    const state = await load("@codemirror/state");
    const view = await load("@codemirror/view");
    return {
      id: "cuda-cells:plugin",
      autoStart: true,
      requires: [IEditorExtensionRegistry, IEditorLanguageRegistry],
      activate: async (app, extensions, languages) => {
        const cpp = (await languages.getLanguage("C++")).support;
        languages.addLanguage({
          name: "CUDA C++",
          mime: "text/x-cuda",
          extensions: ["cu", "cuh"],
          load: async () => cpp,
        });
        app.docRegistry.addFileType({
          name: "cuda",
          displayName: "CUDA C++ file",
          extensions: [".cu", ".cuh"],
          mimeTypes: ["text/x-cuda"],
        });
        extensions.addExtension({
          name: "cuda-cells",
          factory: ({inline}) => EditorExtensionRegistry.createImmutableExtension(
            inline ? overlay(state, view, cpp) : []),
        });
      },
    };
  }

  (window._JUPYTERLAB ??= {})["cuda-cells"] = {
    init: (modules) => { shared = modules; },
    get: async () => {
      const plugin = await extension();
      return () => ({__esModule: true, default: plugin});
    },
  };
})();
